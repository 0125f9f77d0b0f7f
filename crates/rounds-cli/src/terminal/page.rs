//! Pages to visit: the URL and its host are shown, and the page is never opened.

use rounds::client::{AskedQuestion, UserAnswer};
use url::Url;

use super::{Command, Left, Terminal, Typed, clean, form::ONE_OF_THESE, is_start_of};

impl Terminal {
    /// Asks for consent to visit a page.
    pub(super) async fn visit(&self, question: &AskedQuestion) -> Result<UserAnswer, Left> {
        let url = question.url().unwrap_or_default();
        self.say("The server wants you to visit this page. It is not opened for you:");
        self.say("");
        // On one line, however long it is, so that it can be copied.
        self.say(&format!("  {}", clean::line(url)));
        self.say("");
        self.say(&format!("  {}", self.paint.dim(&where_to(url))));
        loop {
            let text = match self.prompt("Agree to visit it? yes, decline or cancel >").await? {
                Typed::Command(Command::Decline) => return Ok(UserAnswer::Decline),
                Typed::Command(Command::Cancel) => return Ok(UserAnswer::Cancel),
                Typed::Command(_) => continue,
                Typed::Text(text) => text,
            };
            match text.trim() {
                text if is_start_of(text, "yes") => return Ok(UserAnswer::Visit),
                text if is_start_of(text, "decline") => return Ok(UserAnswer::Decline),
                text if is_start_of(text, "cancel") => return Ok(UserAnswer::Cancel),
                _ => self.wrong(ONE_OF_THESE),
            }
        }
    }
}

/// Names the host of a page as DNS resolves it, whatever else the URL pretends.
fn where_to(url: &str) -> String {
    let Ok(url) = Url::parse(url) else { return "It is not a URL that can be opened.".to_owned() };
    match (url.scheme(), url.host_str()) {
        ("https", Some(host)) => format!("It leads to {host}."),
        (scheme, Some(host)) => format!("It leads to {host}, over {scheme} instead of https."),
        (scheme, None) => format!("It names no host, and opens the program that handles {scheme}."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_where_its_host_is() {
        assert_eq!(where_to("https://bank.example@evil.example/login"), "It leads to evil.example.");
        assert_eq!(where_to("https://аpple.com/"), "It leads to xn--pple-43d.com.");
        assert_eq!(where_to("http://pay.example"), "It leads to pay.example, over http instead of https.");
        assert_eq!(where_to("javascript:alert(1)"), "It names no host, and opens the program that handles javascript.");
        assert_eq!(where_to("pay.example/now"), "It is not a URL that can be opened.");
    }
}
