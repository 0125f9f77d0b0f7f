//! The command line: `[SECTION ...] [--peers] [--write]`.

use crate::Options;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Command {
    /// The sections to measure. If it is empty, all are measured.
    sections: Vec<String>,
    pub(crate) options: Options,
    /// Whether the results are written to the documentation.
    pub(crate) write: bool,
}

impl Command {
    pub(crate) fn read(args: impl Iterator<Item = String>, known: &[&str]) -> Result<Self, String> {
        let mut command = Self { sections: Vec::new(), options: Options { peers: false }, write: false };
        for arg in args {
            match arg.as_str() {
                "--peers" => command.options.peers = true,
                "--write" => command.write = true,
                name if known.contains(&name) => command.sections.push(arg),
                _ => {
                    let known = known.join(", ");
                    return Err(format!("there is no section `{arg}`: name any of {known}, --peers or --write"));
                }
            }
        }
        Ok(command)
    }

    pub(crate) fn wants(&self, section: &str) -> bool {
        self.sections.is_empty() || self.sections.iter().any(|wanted| wanted == section)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(args: &[&str]) -> Result<Command, String> {
        Command::read(args.iter().map(|arg| (*arg).to_owned()), &["seal", "fleet"])
    }

    #[test]
    fn sections_are_those_named_or_all() {
        let all = read(&["--write"]).unwrap();
        assert!(all.wants("seal") && all.wants("fleet") && all.write && !all.options.peers);
        let one = read(&["--peers", "fleet"]).unwrap();
        assert!(!one.wants("seal") && one.wants("fleet") && !one.write && one.options.peers);
    }

    #[test]
    fn what_is_not_known_is_said_in_one_sentence() {
        let said = read(&["seals"]).unwrap_err();
        assert_eq!(said, "there is no section `seals`: name any of seal, fleet, --peers or --write");
    }
}
