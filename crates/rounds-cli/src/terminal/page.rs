//! Pages to visit: shown whole, with where they lead, and never opened.

use rounds::client::{AskedQuestion, UserAnswer};
use url::Url;

use super::{Command, Left, Terminal, Typed, clean, is_start_of};

impl Terminal {
    /// Asks for consent to visit a page.
    pub(super) async fn visit(&self, question: &AskedQuestion) -> Result<UserAnswer, Left> {
        let url = question.url().unwrap_or_default();
        self.say("It wants you to visit this page, which is not opened for you:");
        self.say("");
        // On one line, however long, so that it can be copied.
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
                _ => self.wrong("say one of these words, or its first letter"),
            }
        }
    }
}

/// Where a page is, for those who do not read URLs: its host as it is looked up, whatever else the URL makes believe.
fn where_to(url: &str) -> String {
    let Ok(url) = Url::parse(url) else { return "It is no URL that could be opened.".to_owned() };
    match (url.scheme(), url.host_str()) {
        ("https", Some(host)) => format!("It leads to {host}."),
        (scheme, Some(host)) => format!("It leads to {host}, by {scheme} and not by https."),
        (scheme, None) => format!("It leads to no host, and opens whatever takes {scheme}."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_where_its_host_is() {
        assert_eq!(where_to("https://bank.example@evil.example/login"), "It leads to evil.example.");
        assert_eq!(where_to("https://аpple.com/"), "It leads to xn--pple-43d.com.");
        assert_eq!(where_to("http://pay.example"), "It leads to pay.example, by http and not by https.");
        assert_eq!(where_to("javascript:alert(1)"), "It leads to no host, and opens whatever takes javascript.");
        assert_eq!(where_to("pay.example/now"), "It is no URL that could be opened.");
    }
}
