//! Limits of a server on the command line: every setting of `rounds::Limits`.

use std::time::Duration;

use clap::Args;
use rounds::Limits;

use crate::duration;

/// What clients and handlers can make grow. `rounds::Limits` documents each option. Every option is also an environment
/// variable.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitOptions {
    /// Rounds in a flow [default: 10]
    #[arg(long, value_name = "NUMBER", env = "ROUNDS_MAX_ROUNDS", hide_short_help = true)]
    max_rounds: Option<u32>,
    /// Questions in a round [default: 16]
    #[arg(long, value_name = "NUMBER", env = "ROUNDS_MAX_QUESTIONS", hide_short_help = true)]
    max_questions: Option<usize>,
    /// Options of a field in a form that is made at run time [default: 500]
    #[arg(long, value_name = "NUMBER", env = "ROUNDS_MAX_CHOICES", hide_short_help = true)]
    max_choices: Option<usize>,
    /// Effects of a flow [default: 64]
    #[arg(long, value_name = "NUMBER", env = "ROUNDS_MAX_EFFECTS", hide_short_help = true)]
    max_effects: Option<usize>,
    /// Bytes of the value of an effect [default: 16384]
    #[arg(long, value_name = "BYTES", env = "ROUNDS_EFFECT_BYTES", hide_short_help = true)]
    effect_bytes: Option<usize>,
    /// How often a question is asked again after an invalid answer [default: 3]
    #[arg(long, value_name = "NUMBER", env = "ROUNDS_MAX_REASKS", hide_short_help = true)]
    max_reasks: Option<u32>,
    /// Handlers that may wait for an answer [default: 10000]
    #[arg(long, value_name = "NUMBER", env = "ROUNDS_MAX_WAITING", hide_short_help = true)]
    max_waiting: Option<usize>,
    /// Handlers that may wait for an answer of one principal [default: 100]
    #[arg(long, value_name = "NUMBER", env = "ROUNDS_MAX_WAITING_PER_PRINCIPAL", hide_short_help = true)]
    max_waiting_per_principal: Option<usize>,
    /// Memory of the handlers that wait, in bytes [default: 268435456]
    #[arg(long, value_name = "BYTES", env = "ROUNDS_WAITING_BYTES", hide_short_help = true)]
    waiting_bytes: Option<usize>,
    /// Memory of the handlers that wait for one principal, in bytes [default: 33554432]
    #[arg(long, value_name = "BYTES", env = "ROUNDS_WAITING_BYTES_PER_PRINCIPAL", hide_short_help = true)]
    waiting_bytes_per_principal: Option<usize>,
    /// Tasks [default: 10000]
    #[arg(long, value_name = "NUMBER", env = "ROUNDS_MAX_TASKS", hide_short_help = true)]
    max_tasks: Option<usize>,
    /// Tasks of one principal [default: 100]
    #[arg(long, value_name = "NUMBER", env = "ROUNDS_MAX_TASKS_PER_PRINCIPAL", hide_short_help = true)]
    max_tasks_per_principal: Option<usize>,
    /// Memory of the tasks, in bytes [default: 268435456]
    #[arg(long, value_name = "BYTES", env = "ROUNDS_TASK_BYTES", hide_short_help = true)]
    task_bytes: Option<usize>,
    /// Memory of the tasks of one principal, in bytes [default: 33554432]
    #[arg(long, value_name = "BYTES", env = "ROUNDS_TASK_BYTES_PER_PRINCIPAL", hide_short_help = true)]
    task_bytes_per_principal: Option<usize>,
    /// Sessions of legacy clients over HTTP [default: 10000]
    #[arg(long, value_name = "NUMBER", env = "ROUNDS_MAX_SESSIONS", hide_short_help = true)]
    max_sessions: Option<usize>,
    /// Sessions of one principal [default: 100]
    #[arg(long, value_name = "NUMBER", env = "ROUNDS_MAX_SESSIONS_PER_PRINCIPAL", hide_short_help = true)]
    max_sessions_per_principal: Option<usize>,
    /// Length of a token in bytes [default: 65536]
    #[arg(long, value_name = "BYTES", env = "ROUNDS_TOKEN_BYTES", hide_short_help = true)]
    token_bytes: Option<usize>,
    /// Bytes of a state that spills into the store [default: 1048576]
    #[arg(long, value_name = "BYTES", env = "ROUNDS_SPILL_BYTES", hide_short_help = true)]
    spill_bytes: Option<usize>,
    /// Bytes of a reply that is kept for retries [default: 262144]
    #[arg(long, value_name = "BYTES", env = "ROUNDS_REPLY_BYTES", hide_short_help = true)]
    reply_bytes: Option<usize>,
    /// Bytes that one leg adds to the record of its flow [default: 65536]
    #[arg(long, value_name = "BYTES", env = "ROUNDS_RECORD_BYTES", hide_short_help = true)]
    record_bytes: Option<usize>,
    /// How long a leg waits for an equal leg that is running [default: 30s]
    #[arg(long, value_name = "DURATION", env = "ROUNDS_WAIT", value_parser = duration::parse, hide_short_help = true)]
    wait: Option<Duration>,
    /// How long a handler that has asked may run after its client is gone [default: 5s]
    #[arg(long, value_name = "DURATION", env = "ROUNDS_GRACE", value_parser = duration::parse, hide_short_help = true)]
    grace: Option<Duration>,
}

impl LimitOptions {
    /// The default limits, with those that were set.
    pub(crate) fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        set(&mut limits.rounds, self.max_rounds);
        set(&mut limits.questions, self.max_questions);
        set(&mut limits.choices, self.max_choices);
        set(&mut limits.effects, self.max_effects);
        set(&mut limits.effect_bytes, self.effect_bytes);
        set(&mut limits.reasks, self.max_reasks);
        set(&mut limits.frames, self.max_waiting);
        set(&mut limits.frames_per_principal, self.max_waiting_per_principal);
        set(&mut limits.frame_bytes, self.waiting_bytes);
        set(&mut limits.frame_bytes_per_principal, self.waiting_bytes_per_principal);
        set(&mut limits.tasks, self.max_tasks);
        set(&mut limits.tasks_per_principal, self.max_tasks_per_principal);
        set(&mut limits.task_bytes, self.task_bytes);
        set(&mut limits.task_bytes_per_principal, self.task_bytes_per_principal);
        set(&mut limits.sessions, self.max_sessions);
        set(&mut limits.sessions_per_principal, self.max_sessions_per_principal);
        set(&mut limits.token_bytes, self.token_bytes);
        set(&mut limits.spill_bytes, self.spill_bytes);
        set(&mut limits.reply_bytes, self.reply_bytes);
        set(&mut limits.record_bytes, self.record_bytes);
        set(&mut limits.wait, self.wait);
        set(&mut limits.grace, self.grace);
        limits
    }
}

fn set<T>(limit: &mut T, to: Option<T>) {
    if let Some(to) = to {
        *limit = to;
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        limits: LimitOptions,
    }

    #[test]
    fn the_defaults_are_those_of_the_library() {
        assert_eq!(LimitOptions::default().limits(), Limits::default());
    }

    /// A new limit of the library needs an option here. `lease` is an option of `serve` itself.
    #[test]
    fn every_limit_has_an_option() {
        let shown = format!("{:?}", Limits::default());
        let fields = shown.matches(": ").count();
        let own = ["spills", "lease"].len();
        let options = <Command as clap::CommandFactory>::command().get_arguments().count();
        assert_eq!(options, fields - own, "{shown}");
    }

    #[test]
    fn each_option_changes_a_limit_of_its_own() {
        let command = <Command as clap::CommandFactory>::command();
        let names: Vec<_> = command.get_arguments().filter_map(|argument| argument.get_long()).collect();
        let mut seen = vec![Limits::default()];
        for name in names {
            let value = if ["wait", "grace"].contains(&name) { "7s" } else { "7" };
            let set = Command::parse_from(["serve".to_owned(), format!("--{name}={value}")]).limits.limits();
            assert!(!seen.contains(&set), "--{name} changes nothing, or the same as another option");
            seen.push(set);
        }
    }
}
