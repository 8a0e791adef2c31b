//! A real Chromium behind chromedriver: WebDriver through fantoccini, and what only Chromium's own protocol offers.

use std::time::Duration;

use fantoccini::elements::Element;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};

use crate::support::Server;

/// Width and height of a screen, CSS px.
pub type Screen = (u32, u32);
pub const WIDE: Screen = (1280, 900);
pub const PHONE: Screen = (390, 844);
pub const SMALL: Screen = (320, 640);

/// How long something may take on a busy machine before it counts as not coming.
const PATIENCE: Duration = Duration::from_secs(20);

/// A browser session with a profile of its own. fantoccini ends it when it is dropped.
pub struct Browser {
    pub client: Client,
    session: String,
    http: reqwest::Client,
    _profile: tempfile::TempDir,
}

impl Browser {
    pub async fn open() -> Browser {
        let driver = Server::Webdriver.address();
        // Without one reqwest makes no client, although chromedriver is asked in the clear. A second one is refused, and that is well.
        _ = rustls::crypto::ring::default_provider().install_default();
        let profile = tempfile::tempdir().expect("a profile folder");
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--force-color-profile=srgb",
        ];
        let arguments =
            arguments.iter().map(|argument| (*argument).to_owned()).chain([format!("--user-data-dir={}", profile.path().display())]);
        let mut options = json!({ "args": arguments.collect::<Vec<_>>() });
        if let Ok(binary) = std::env::var("LAZARET_TEST_CHROMIUM") {
            options["binary"] = Value::from(binary);
        }
        let wanted = json!({ "goog:chromeOptions": options, "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" } });
        let wanted = wanted.as_object().expect("an object").clone();
        let client = ClientBuilder::new(HttpConnector::new()).capabilities(wanted).connect(&driver).await.expect("a browser");
        let id = client.session_id().await.expect("an answer").expect("a session");
        let session = format!("{}/session/{id}", driver.trim_end_matches('/'));
        let browser = Browser { client, session, http: reqwest::Client::new(), _profile: profile };
        browser.screen(WIDE).await;
        browser
    }

    async fn command(&self, path: &str, body: Value) -> Value {
        let answer = self.http.post(format!("{}/{path}", self.session)).json(&body).send().await.expect("the driver answers");
        let value = answer.json::<Value>().await.expect("JSON")["value"].take();
        assert!(value.get("error").is_none(), "{path} {body}: {value}");
        value
    }

    /// A command of the DevTools protocol.
    pub async fn devtools(&self, command: &str, parameters: Value) -> Value {
        self.command("goog/cdp/execute", json!({ "cmd": command, "params": parameters })).await
    }

    pub async fn screen(&self, (width, height): Screen) {
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.devtools("Emulation.setDeviceMetricsOverride", metrics).await;
    }

    /// What the system asks of pages: `prefers-color-scheme`, `prefers-reduced-motion`, `forced-colors`. What is not named is as usual.
    pub async fn prefers(&self, features: &[(&str, &str)]) {
        let features: Vec<Value> = features.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
        self.devtools("Emulation.setEmulatedMedia", json!({ "features": features })).await;
    }

    /// Pages loaded from now on run no script; the driver's own questions still do.
    pub async fn without_scripts(&self) {
        self.devtools("Emulation.setScriptExecutionDisabled", json!({ "value": true })).await;
    }

    pub async fn set_cookie(&self, url: &str, name: &str, value: &str) {
        self.devtools("Network.setCookie", json!({ "url": url, "name": name, "value": value })).await;
    }

    /// Everything the console was told since it was last asked: a broken policy, a missing file, a script's error.
    pub async fn console(&self) -> Vec<Value> {
        self.log("browser").await
    }

    /// The network's events since they were last asked for: method and parameters.
    pub async fn network(&self) -> Vec<(String, Value)> {
        let entries = self.log("performance").await;
        let message = |entry: Value| {
            let text = entry["message"].as_str().expect("a message").to_owned();
            let mut message = serde_json::from_str::<Value>(&text).expect("JSON")["message"].take();
            (message["method"].as_str().unwrap_or_default().to_owned(), message["params"].take())
        };
        entries.into_iter().map(message).filter(|(method, _)| method.starts_with("Network.")).collect()
    }

    async fn log(&self, kind: &str) -> Vec<Value> {
        match self.command("se/log", json!({ "type": kind })).await {
            Value::Array(entries) => entries,
            other => panic!("a log is a list, not {other}"),
        }
    }

    pub async fn goto(&self, url: &str) {
        self.client.goto(url).await.unwrap_or_else(|error| panic!("{url}: {error}"));
    }

    /// The path and query of where we are.
    pub async fn place(&self) -> String {
        let url = self.client.current_url().await.expect("where we are");
        url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()))
    }

    /// What a script returns.
    pub async fn ask(&self, script: &str) -> Value {
        self.ask_with(script, vec![]).await
    }

    pub async fn ask_with(&self, script: &str, arguments: Vec<Value>) -> Value {
        let start = script.get(..60).unwrap_or(script);
        self.client.execute(script, arguments).await.unwrap_or_else(|error| panic!("{start}: {error}"))
    }

    /// A number that a script returns.
    pub async fn number(&self, script: &str) -> f64 {
        self.ask(script).await.as_f64().unwrap_or_else(|| panic!("no number from {script}"))
    }

    /// Waits until a script returns true.
    pub async fn until(&self, what: &str, patience: Duration, script: &str) {
        let deadline = tokio::time::Instant::now() + patience;
        while self.ask(script).await != Value::Bool(true) {
            assert!(tokio::time::Instant::now() < deadline, "not within {patience:?}: {what}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits for it: a form's answer takes as long as a password's hash.
    pub async fn element(&self, selector: &str) -> Element {
        let found = self.client.wait().at_most(PATIENCE).for_element(Locator::Css(selector)).await;
        match found {
            Ok(element) => element,
            Err(error) => panic!("{selector} on {}: {error}", self.place().await),
        }
    }

    pub async fn has(&self, selector: &str) -> bool {
        !self.client.find_all(Locator::Css(selector)).await.expect("an answer").is_empty()
    }

    pub async fn click(&self, selector: &str) {
        let element = self.element(selector).await;
        element.click().await.unwrap_or_else(|error| panic!("{selector}: {error}"));
    }

    pub async fn text(&self, selector: &str) -> String {
        let element = self.element(selector).await;
        element.text().await.expect("its text")
    }

    pub async fn type_into(&self, selector: &str, text: &str) {
        let element = self.element(selector).await;
        element.send_keys(text).await.unwrap_or_else(|error| panic!("{selector}: {error}"));
    }

    /// Presses keys one after the other, wherever the focus is: `\u{E004}` is Tab, `\u{E007}` Enter, `\u{E00C}` Escape.
    pub async fn keys(&self, keys: &str) {
        let stroke = |key: char| [json!({ "type": "keyDown", "value": key }), json!({ "type": "keyUp", "value": key })];
        let strokes: Vec<Value> = keys.chars().flat_map(stroke).collect();
        self.command("actions", json!({ "actions": [{ "type": "key", "id": "keyboard", "actions": strokes }] })).await;
    }

    /// Fills in the sign-in form that the browser stands on.
    pub async fn sign_in(&self, name: &str, password: &str) {
        self.type_into("#name", name).await;
        self.type_into("#password", password).await;
        self.click("main form .btn.go").await;
        self.element("form[action='/sign-out']").await;
    }

    /// A picture for people, with `LAZARET_TEST_SCREENSHOTS`.
    pub async fn picture(&self, name: &str) {
        if let Ok(folder) = std::env::var("LAZARET_TEST_SCREENSHOTS") {
            let bytes = self.client.screenshot().await.expect("a picture");
            std::fs::write(std::path::Path::new(&folder).join(format!("{name}.png")), bytes).expect("a folder to write to");
        }
    }
}
