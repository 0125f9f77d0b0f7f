//! Every limit, timeout and budget of the library can be set when a server is started.

use crate::process::run;

/// The files in which limits, timeouts and budgets are set, each with the options of `rounds serve` by setter. `Limits` has a
/// test of its own, beside its options.
const SETTERS: &[(&str, &[(&str, &str)])] = &[
    (
        include_str!("../../../rounds-http/src/port/mod.rs"),
        &[
            ("with_drain", "--in-flight"),
            ("with_header_timeout", "--header-timeout"),
            ("with_body_timeout", "--body-timeout"),
            ("with_write_stall", "--write-stall"),
            ("with_keep_alive", "--keep-alive"),
            ("with_connections", "--connections"),
            ("with_unfinished_bytes", "--unfinished-bytes"),
        ],
    ),
    (include_str!("../../../rounds-http/src/lib.rs"), &[("with_json_values", "--json-values")]),
    (
        include_str!("../../../rounds/src/server/builder.rs"),
        &[
            ("round_lifetime", "--round-lifetime"),
            ("flow_deadline", "--flow-deadline"),
            ("register_for", "--keep-flows"),
            // Settings of single tools, which the gallery has none of.
            ("round_lifetime_for", "--round-lifetime"),
            ("flow_deadline_for", "--flow-deadline"),
        ],
    ),
    (
        include_str!("../../../rounds/src/server/elsewhere/mod.rs"),
        &[("hold", "--elsewhere-hold"), ("rounds", "--elsewhere-rounds")],
    ),
    (include_str!("../../../rounds/src/server/tasks/mod.rs"), &[]),
    (
        include_str!("../../../rounds/src/server/ledger/memory/mod.rs"),
        &[
            ("with_claim_bytes", "--memory-claim-bytes"),
            ("with_anonymous_bytes", "--memory-anonymous-bytes"),
            ("with_principal_bytes", "--memory-principal-bytes"),
            ("with_reply_bytes", "--memory-reply-bytes"),
            ("with_flow_bytes", "--memory-flow-bytes"),
            ("with_document_bytes", "--memory-document-bytes"),
        ],
    ),
    (
        include_str!("../../../rounds-redis/src/connect.rs"),
        &[
            ("timeout", "--store-timeout"),
            ("connect_timeout", "--store-connect-timeout"),
            ("wait", "--store-wait"),
            ("anonymous_bytes", "--store-anonymous-bytes"),
            ("principal_bytes", "--store-principal-bytes"),
            ("freeing_bytes", "--store-freeing-bytes"),
        ],
    ),
    (
        include_str!("../../../rounds-redis/src/relay.rs"),
        &[("timeout", "--store-timeout"), ("connect_timeout", "--store-connect-timeout"), ("wait", "--store-wait")],
    ),
    (include_str!("../../../rounds-sql/src/sqlite/open.rs"), SQL),
    (include_str!("../../../rounds-sql/src/postgres/connect.rs"), SQL),
    (include_str!("../../../rounds-sql/src/postgres/relay.rs"), &[("timeout", "--store-timeout")]),
];

const SQL: &[(&str, &str)] = &[
    ("timeout", "--store-timeout"),
    ("anonymous_bytes", "--store-anonymous-bytes"),
    ("principal_bytes", "--store-principal-bytes"),
    ("freeing_bytes", "--store-freeing-bytes"),
];

/// The names of public methods that take a value by itself and set a time or a number.
fn setters(source: &str) -> Vec<&str> {
    let is_setter = |line: &&str| {
        let takes = ["Duration)", "usize)", "u32)", "u64)"].iter().any(|argument| line.contains(argument));
        (line.contains("(mut self, ") || line.contains("(self, ")) && takes && line.contains("-> Self")
    };
    source.lines().filter(is_setter).filter_map(name).collect()
}

fn name(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix("pub fn ")?.split('(').next()
}

#[tokio::test]
async fn every_time_and_number_that_the_library_can_set_has_an_option() {
    let help = run(&["serve", "--help"]).await.printed();
    let mut count = 0;
    for (source, options) in SETTERS {
        for setter in setters(source) {
            let title = source.lines().next().unwrap_or_default();
            let option = options.iter().find(|(name, _)| *name == setter).map(|(_, option)| option);
            let option = option.unwrap_or_else(|| panic!("`{setter}` ({title}) has no option of `rounds serve`"));
            assert!(help.contains(&format!("{option} <")), "{option} of `{setter}` is not in the help");
            count += 1;
        }
        for (name, _) in *options {
            assert!(setters(source).contains(name), "`{name}` is not a setter any more");
        }
    }
    assert!(count > 30, "{count}");
}
