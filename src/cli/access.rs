//! `lazaret user` and `lazaret token`.

use super::args::{Place, TokenCommand, UserCommand};
use super::{Failure, database, terminal};
use crate::config::{self, Purpose};
use crate::domain::access::Role;
use crate::domain::clock::Clock;
use crate::services::access::{Access, AccessError, check_password};

/// With the key of the trail where something is to be changed; lists need none.
async fn open(place: &Place, lists: bool) -> Result<(config::Config, Access), Failure> {
    let purpose = if lists { Purpose::Database } else { Purpose::Trail };
    let (config, store) = database::open(place, purpose).await?;
    let access = Access::new(store, Clock::system(), config.auth.session_hours);
    Ok((config, access))
}

pub async fn user(place: &Place, command: UserCommand) -> Result<(), Failure> {
    let (config, access) = open(place, matches!(command, UserCommand::List)).await?;
    let failed = |error: AccessError| in_words(&config, error);
    let usable = |password: &str| check_password(password).map_err(failed);
    match command {
        UserCommand::Add { name, grant, password } => {
            let password = terminal::new_password(password.password_file.as_deref(), usable)?;
            access.add_user(&name, &password, grant.role, grant.owners.clone()).await.map_err(failed)?;
            say!("user {} added: {} for {}", name.trim(), grant.role.as_str(), owners(&grant.owners));
            let users = access.store.users().await.map_err(|error| failed(error.into()))?;
            if !users.iter().any(|user| user.role == Role::Admin && !user.disabled) {
                note!(
                    "There is no active admin, and the set-up link of `lazaret serve` is for the first user alone: \
                     `lazaret user add NAME --role admin` makes one."
                );
            }
        }
        UserCommand::Passwd { name, password } => {
            let password = terminal::new_password(password.password_file.as_deref(), usable)?;
            access.set_password(&name, &password).await.map_err(failed)?;
            say!("password of {name} replaced; its sessions have ended");
        }
        UserCommand::Disable { name } => {
            access.disable_user(&name).await.map_err(failed)?;
            say!("user {name} disabled; its sessions have ended");
        }
        UserCommand::Enable { name } => {
            access.enable_user(&name).await.map_err(failed)?;
            say!("user {name} enabled; its password is the one from before");
        }
        UserCommand::List => {
            let users = access.store.users().await.map_err(|error| failed(error.into()))?;
            let row = |user: &crate::store::users::User| {
                let state = if user.disabled { "disabled" } else { "active" };
                vec![
                    user.name.clone(),
                    user.role.as_str().to_owned(),
                    user.owners.to_text(),
                    state.to_owned(),
                    terminal::instant(user.created_at_ms),
                ]
            };
            terminal::out(format_args!(
                "{}",
                terminal::table(&["NAME", "ROLE", "OWNERS", "STATE", "MADE"], &users.iter().map(row).collect::<Vec<_>>())
            ));
        }
    }
    Ok(())
}

pub async fn token(place: &Place, command: TokenCommand) -> Result<(), Failure> {
    let (config, access) = open(place, matches!(command, TokenCommand::List)).await?;
    let failed = |error: AccessError| in_words(&config, error);
    let now = access.clock.now_ms();
    match command {
        TokenCommand::Create { name, grant, expires } => {
            let expires_at_ms = expires.map(|age| expiry(&age, now)).transpose()?;
            let secret = access.create_token(&name, grant.role, grant.owners.clone(), expires_at_ms, None).await.map_err(failed)?;
            let until = expires_at_ms.map_or_else(|| "does not expire".to_owned(), |at| format!("expires {}", terminal::instant(at)));
            note!(
                "token {} made: {} for {}, {until}. Keep it now; it is not shown again:",
                name.trim(),
                grant.role.as_str(),
                owners(&grant.owners)
            );
            say!("{secret}");
        }
        TokenCommand::Revoke { name } => {
            access.revoke_token(&name).await.map_err(failed)?;
            say!("token {name} revoked");
        }
        TokenCommand::List => {
            let tokens = access.store.tokens().await.map_err(|error| failed(error.into()))?;
            let row = |token: &crate::store::tokens::ApiToken| {
                let state = match (token.revoked_at_ms, token.expires_at_ms) {
                    (Some(at), _) => format!("revoked {}", terminal::instant(at)),
                    (None, Some(at)) if at <= now => format!("expired {}", terminal::instant(at)),
                    (None, Some(at)) => format!("until {}", terminal::instant(at)),
                    (None, None) => "does not expire".to_owned(),
                };
                vec![
                    token.name.clone(),
                    token.role.as_str().to_owned(),
                    token.owners.to_text(),
                    state,
                    terminal::instant(token.created_at_ms),
                ]
            };
            terminal::out(format_args!(
                "{}",
                terminal::table(&["NAME", "ROLE", "OWNERS", "STATE", "MADE"], &tokens.iter().map(row).collect::<Vec<_>>())
            ));
        }
    }
    Ok(())
}

fn expiry(age: &str, now_ms: i64) -> Result<i64, Failure> {
    let age_ms = config::age_ms(age).and_then(|age_ms| now_ms.checked_add(age_ms));
    age_ms.ok_or_else(|| Failure::Usage(format!("--expires: {age:?} is no age. Give a number and one of s, m, h, d, w, for example 90d.")))
}

fn owners(scope: &crate::domain::access::OwnerScope) -> String {
    match scope {
        crate::domain::access::OwnerScope::All => "all owners".to_owned(),
        crate::domain::access::OwnerScope::Listed(owners) => owners.join(", "),
    }
}

fn in_words(config: &config::Config, error: AccessError) -> Failure {
    match error {
        AccessError::Refused(sentence) | AccessError::Machine(sentence) => Failure::Failed(format!("{sentence}.")),
        AccessError::Store(error) => database::failed(config, &error),
    }
}
