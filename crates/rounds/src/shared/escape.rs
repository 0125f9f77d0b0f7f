//! Untrusted text, escaped for display: it cannot move a cursor, begin a line, reverse the direction of text or hide in
//! it.

use std::fmt::{self, Write as _};

/// A text in which every character is escaped that is not [harmless](is_harmless).
#[cfg(feature = "server")]
pub(crate) struct Escaped<'a>(pub(crate) &'a str);

#[cfg(feature = "server")]
impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| write_char(f, c))
    }
}

/// Writes a character, or its escape.
pub(crate) fn write_char(f: &mut fmt::Formatter<'_>, c: char) -> fmt::Result {
    if is_harmless(c) { f.write_char(c) } else { write!(f, "{}", c.escape_unicode()) }
}

/// Whether a terminal or a page shows this character as what it is. False for control characters, and for those that turn text around or hide
/// in it.
#[cfg_attr(not(feature = "client"), expect(unreachable_pub, reason = "exported with the client"))]
pub fn is_harmless(c: char) -> bool {
    let is_deceptive = matches!(
        c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}'
    );
    !c.is_control() && !is_deceptive
}
