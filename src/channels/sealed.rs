//! Secrets at rest: XChaCha20-Poly1305 under a key that lies outside the database. Whoever reads the database alone reads no secret; whoever writes to it cannot put
//! one channel's secret into another's row, because each is bound to its channel.

use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};

use super::Destination;

/// What the key is derived for: see `AuditKey::derived`.
pub const SEALING: &str = "lazaret channel secrets 1";
/// The first byte of what is sealed.
const VERSION: u8 = 1;
const NONCE: usize = 24;

/// Why a secret cannot be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// Made with another key, for another channel, or changed since.
    #[error("the channel's secret cannot be read: it was stored under another audit key, or changed since. Give URL and key anew")]
    Unreadable,
}

/// Seals a destination for the channel `uid`. `nonce` is 24 bytes of chance, new ones each time.
pub fn seal(key: &[u8; 32], uid: &str, destination: &Destination, nonce: [u8; NONCE]) -> Vec<u8> {
    let plain = serde_json::to_vec(destination).expect("two texts have a JSON form");
    let payload = Payload { msg: &plain, aad: uid.as_bytes() };
    let sealed =
        XChaCha20Poly1305::new(key.into()).encrypt(&XNonce::from(nonce), payload).expect("a few kilobytes are not too long to be sealed");
    [&[VERSION][..], &nonce, &sealed].concat()
}

/// The reverse of [`seal`].
///
/// # Errors
/// [`SealError::Unreadable`].
pub fn open(key: &[u8; 32], uid: &str, sealed: &[u8]) -> Result<Destination, SealError> {
    let (version, rest) = sealed.split_first().ok_or(SealError::Unreadable)?;
    let (nonce, sealed) = rest.split_first_chunk::<NONCE>().filter(|_| *version == VERSION).ok_or(SealError::Unreadable)?;
    let payload = Payload { msg: sealed, aad: uid.as_bytes() };
    let plain = XChaCha20Poly1305::new(key.into()).decrypt(&XNonce::from(*nonce), payload).map_err(|_| SealError::Unreadable)?;
    serde_json::from_slice(&plain).map_err(|_| SealError::Unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_right_key_and_the_right_channel_open_it() {
        let secret = Destination { url: "https://hooks.example/T0/swordfish".to_owned(), key: Some("whsec_hunter2".to_owned()) };
        let sealed = seal(&[1; 32], "channel-1", &secret, [5; 24]);
        assert_eq!(open(&[1; 32], "channel-1", &sealed), Ok(secret.clone()));
        for word in ["swordfish", "hunter2", "hooks.example"] {
            assert!(!sealed.windows(word.len()).any(|bytes| bytes == word.as_bytes()), "{word}");
        }
        assert_eq!(open(&[2; 32], "channel-1", &sealed), Err(SealError::Unreadable));
        assert_eq!(open(&[1; 32], "channel-2", &sealed), Err(SealError::Unreadable));
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(open(&[1; 32], "channel-1", &changed), Err(SealError::Unreadable), "byte {at}");
        }
        for length in [0, 1, 24, 25, sealed.len() - 1] {
            assert_eq!(open(&[1; 32], "channel-1", &sealed[..length]), Err(SealError::Unreadable), "{length} bytes");
        }
        assert_ne!(seal(&[1; 32], "channel-1", &secret, [6; 24]), sealed);
    }
}
