//! A Chromium of one test, and what a person does with it: it finds things by the names that a screen reader says.

use std::{
    fmt::Debug,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use fantoccini::{Client, ClientBuilder, Locator, elements::Element, wd::WebDriverCompatibleCommand};
use http::Method;
use serde_json::{Value, json};
use tokio::time::timeout;

/// How long a page may take to show what is expected of it.
const PATIENCE: Duration = Duration::from_secs(20);

/// A browser with one window. It and its driver end with the test.
pub(crate) struct Browser {
    pub(crate) client: Client,
    driver: Child,
    profile: PathBuf,
}

impl Browser {
    pub(crate) async fn open() -> Self {
        let (driver, port) = driver();
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let profile = std::env::temp_dir().join(format!("rounds-desk-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&profile).unwrap();
        let data = format!("--user-data-dir={}", profile.display());
        let args = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--hide-scrollbars",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--lang=en",
            &data,
        ];
        let Value::Object(capabilities) = json!({"goog:chromeOptions": {"args": args}}) else {
            unreachable!("an object")
        };
        let mut builder = ClientBuilder::new(hyper_util::client::legacy::connect::HttpConnector::new());
        let client = builder.capabilities(capabilities).connect(&format!("http://127.0.0.1:{port}")).await.unwrap();
        Self { client, driver, profile }
    }

    pub(crate) async fn visit(&self, url: &str) {
        self.client.goto(url).await.unwrap();
    }

    /// The element that an XPath finds, once it is there.
    pub(crate) async fn find(&self, xpath: &str) -> Element {
        match self.client.wait().at_most(PATIENCE).for_element(Locator::XPath(xpath)).await {
            Ok(found) => found,
            Err(_) => panic!("{xpath} is not on the page:\n{}", self.text().await),
        }
    }

    pub(crate) async fn press(&self, button: &str) {
        self.find(&format!("//button[normalize-space()='{button}']")).await.click().await.unwrap();
    }

    pub(crate) async fn follow(&self, link: &str) {
        self.find(&format!("//a[normalize-space()='{link}']")).await.click().await.unwrap();
    }

    /// The field with this label.
    pub(crate) async fn field(&self, label: &str) -> Element {
        let label = self.find(&format!("//label[normalize-space()='{label}']")).await;
        let id = label.attr("for").await.unwrap().unwrap();
        self.client.find(Locator::Id(&id)).await.unwrap()
    }

    pub(crate) async fn fill(&self, label: &str, text: &str) {
        let field = self.field(label).await;
        field.clear().await.unwrap();
        field.send_keys(text).await.unwrap();
    }

    pub(crate) async fn choose(&self, label: &str, choice: &str) {
        self.field(label).await.select_by_label(choice).await.unwrap();
    }

    /// Waits until the page shows this text.
    pub(crate) async fn shows(&self, text: &str) {
        let shown = async {
            while !self.text().await.contains(text) {
                tokio::task::yield_now().await;
            }
        };
        if timeout(PATIENCE, shown).await.is_err() {
            panic!("{text:?} is not on the page:\n{}", self.text().await);
        }
    }

    pub(crate) async fn text(&self) -> String {
        // While a page is being left, it has no body.
        let text = self.client.execute("return document.body ? document.body.innerText : ''", vec![]).await;
        text.ok().and_then(|text| text.as_str().map(str::to_owned)).unwrap_or_default()
    }

    /// The text of the region with this name, as assistive technology knows it.
    pub(crate) async fn region(&self, name: &str) -> String {
        let heading = self.find(&format!("//section/h2[normalize-space()='{name}']")).await;
        let id = heading.attr("id").await.unwrap().unwrap();
        self.find(&format!("//section[@aria-labelledby='{id}']")).await.text().await.unwrap()
    }

    /// Pretends that the user prefers this theme, at this width.
    pub(crate) async fn look(&self, theme: &str, width: u32) {
        let features = json!([{"name": "prefers-color-scheme", "value": theme}]);
        self.cdp("Emulation.setEmulatedMedia", json!({"features": features})).await;
        self.size(width, 800).await;
    }

    pub(crate) async fn size(&self, width: u32, height: u32) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.cdp("Emulation.setDeviceMetricsOverride", size).await;
    }

    pub(crate) async fn without_scripts(&self) {
        self.cdp("Emulation.setScriptExecutionDisabled", json!({"value": true})).await;
    }

    async fn cdp(&self, method: &str, params: Value) {
        self.client.issue_cmd(Cdp(json!({"cmd": method, "params": params}))).await.unwrap();
    }

    pub(crate) async fn close(self) {
        self.client.clone().close().await.unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // What is left of them when a test has failed.
        let _ = self.driver.kill();
        let _ = self.driver.wait();
        let _ = std::fs::remove_dir_all(&self.profile);
    }
}

/// Starts ChromeDriver at a free port.
fn driver() -> (Child, u16) {
    let missing = "chromedriver starts: `cargo xtask chromium` installs it";
    let mut driver = Command::new("chromedriver")
        .arg("--port=0")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect(missing);
    let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
    let port = lines.find_map(|line| {
        let line = line.unwrap();
        line.split("started successfully on port ").nth(1)?.trim_end_matches('.').parse().ok()
    });
    // It goes on printing, and must not be stopped by a full pipe.
    std::thread::spawn(move || lines.for_each(drop));
    (driver, port.expect(missing))
}

/// A command of Chromium's own protocol.
#[derive(Debug)]
struct Cdp(Value);

impl WebDriverCompatibleCommand for Cdp {
    fn endpoint(&self, base: &url::Url, session: Option<&str>) -> Result<url::Url, url::ParseError> {
        base.join(&format!("session/{}/goog/cdp/execute", session.unwrap_or_default()))
    }

    fn method_and_body(&self, _: &url::Url) -> (Method, Option<String>) {
        (Method::POST, Some(self.0.to_string()))
    }
}
