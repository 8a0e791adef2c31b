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

#[cfg(test)]
mod tests {
    use super::*;

    /// `--name: light-dark(#.., #..)` of the style sheet, as (light, dark).
    fn token(name: &str) -> [[f64; 3]; 2] {
        let css = std::str::from_utf8(ASSETS[0].content).unwrap();
        let at = css.find(&format!("--{name}: light-dark(")).unwrap_or_else(|| panic!("no token --{name}"));
        let inside = css[at..].split_once('(').unwrap().1.split_once(')').unwrap().0;
        let colours: Vec<[f64; 3]> = inside.split(',').map(|colour| rgb(colour.trim())).collect();
        colours.try_into().unwrap()
    }

    fn rgb(colour: &str) -> [f64; 3] {
        let digits = colour.strip_prefix('#').unwrap();
        let digits: String = if digits.len() == 3 { digits.chars().flat_map(|digit| [digit, digit]).collect() } else { digits.to_owned() };
        [0, 2, 4].map(|at| f64::from(u8::from_str_radix(&digits[at..at + 2], 16).unwrap()) / 255.0)
    }

    /// WCAG 2.2, "relative luminance" and "contrast ratio".
    fn contrast(one: [f64; 3], other: [f64; 3]) -> f64 {
        let luminance = |colour: [f64; 3]| {
            let [r, g, b] = colour.map(|part| if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) });
            0.2126 * r + 0.7152 * g + 0.0722 * b
        };
        let (a, b) = (luminance(one), luminance(other));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn texts_stand_out_from_what_is_behind_them() {
        let texts = [
            ("text", "page"),
            ("text", "surface"),
            ("muted", "page"),
            ("muted", "surface"),
            ("accent", "page"),
            ("accent", "surface"),
            ("accent-text", "accent"),
            ("crit-t", "crit"),
            ("warn-t", "warn"),
            ("ok-t", "ok"),
            ("info-t", "info"),
            ("none-t", "none"),
        ];
        // A control's border and a line in a chart are no text: WCAG asks for 3:1.
        let shapes = [("control", "page"), ("stroke", "page"), ("crit", "page")];
        for (least, pairs) in [(5.7, &texts[..]), (3.0, &shapes[..])] {
            for (front, behind) in pairs {
                for (theme, at) in [("light", 0), ("dark", 1)] {
                    let ratio = contrast(token(front)[at], token(behind)[at]);
                    assert!(ratio >= least, "--{front} on --{behind}, {theme}: {ratio:.2}:1");
                }
            }
        }
        assert!((contrast([0.0; 3], [1.0; 3]) - 21.0).abs() < 1e-9, "black on white");
    }

    /// The browser's budget, compressed as a proxy at its default would.
    #[tokio::test]
    async fn what_every_page_needs_is_small() {
        use tower::ServiceExt as _;
        let files =
            axum::Router::new().route("/static/{file}", axum::routing::get(file)).layer(tower_http::compression::CompressionLayer::new());
        let mut sizes = std::collections::BTreeMap::new();
        for asset in ASSETS {
            let request = axum::http::Request::get(format!("/static/{}", asset.name)).header(header::ACCEPT_ENCODING, "gzip");
            let response = files.clone().oneshot(request.body(axum::body::Body::empty()).unwrap()).await.unwrap();
            assert_eq!(response.headers().get(header::CONTENT_ENCODING).unwrap(), "gzip", "{}", asset.name);
            let kind = asset.name.rsplit('.').next().unwrap();
            *sizes.entry(kind).or_insert(0) += axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap().len();
        }
        assert!(sizes["css"] <= 12_000 && sizes["js"] <= 25_000, "{sizes:?}");
    }
}
