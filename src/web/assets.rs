//! The files that pages refer to, built into the binary. Their address carries a fingerprint of their content, so that a browser may
//! keep them for good and still gets the next version at once.

use std::sync::LazyLock;

use axum::extract::{Path, RawQuery};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use sha2::{Digest as _, Sha256};

use super::view::text::hex;
use crate::api::Failure;

struct Asset {
    name: &'static str,
    kind: &'static str,
    content: &'static [u8],
}

const ASSETS: &[Asset] = &[
    Asset { name: "app.css", kind: "text/css; charset=utf-8", content: include_bytes!("../../static/app.css") },
    Asset { name: "htmx-2.0.11.js", kind: "text/javascript; charset=utf-8", content: include_bytes!("../../static/vendor/htmx-2.0.11.js") },
    Asset { name: "app.js", kind: "text/javascript; charset=utf-8", content: include_bytes!("../../static/app.js") },
    Asset { name: "icon.svg", kind: "image/svg+xml", content: include_bytes!("../../static/icon.svg") },
];

static CSS: LazyLock<String> = LazyLock::new(|| address(&ASSETS[0]));
static SCRIPTS: LazyLock<Vec<String>> = LazyLock::new(|| ASSETS.iter().filter(|asset| asset.name.ends_with(".js")).map(address).collect());

/// The style sheet's address.
pub fn css() -> &'static str {
    &CSS
}

/// The scripts' addresses, in the order in which they run.
pub fn scripts() -> &'static [String] {
    &SCRIPTS
}

fn address(asset: &Asset) -> String {
    format!("/static/{}?v={}", asset.name, fingerprint(asset))
}

fn fingerprint(asset: &Asset) -> String {
    hex(&Sha256::digest(asset.content)[..6])
}

/// `GET /static/{file}`.
pub async fn file(Path(name): Path<String>, RawQuery(query): RawQuery, headers: HeaderMap) -> Response {
    let Some(asset) = ASSETS.iter().find(|asset| asset.name == name) else {
        return Failure::of_status(StatusCode::NOT_FOUND).into_response();
    };
    let version = fingerprint(asset);
    let etag = format!("\"{version}\"");
    let caching = match query.as_deref().and_then(|query| query.strip_prefix("v=")) {
        Some(asked) if asked == version => "public, max-age=31536000, immutable",
        _ => "no-cache",
    };
    let known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    // A proxy that compressed the file may have weakened the tag.
    let unchanged = known.is_some_and(|known| known.split(',').any(|tag| tag.trim().trim_start_matches("W/") == etag));
    let headers = [(header::CONTENT_TYPE, asset.kind), (header::CACHE_CONTROL, caching), (header::ETAG, etag.as_str())];
    if unchanged { (StatusCode::NOT_MODIFIED, headers).into_response() } else { (headers, asset.content).into_response() }
}
