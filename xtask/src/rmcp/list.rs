//! What is known about the tests of rmcp 3.8.0: which do not run here, how their text is changed, and which fail on
//! purpose. Review all of it for a new version of rmcp.

/// Number of tests that run, including those that fail: 672 of rmcp, and those of `interop/rmcp/tests/modern`. Another
/// number means that a file was not compiled, or that rmcp has changed.
pub(super) const TESTS: usize = 672 + 3;

/// Number of servers that the tests start inside a `Rounds`: all except the one that an edit names. A smaller number
/// means that a server was started without it.
pub(super) const SERVERS: usize = 262 + 3;

/// Tests that are expected to fail, and why. The table in the guide `interop` has them too.
pub(super) const DIFFERENT: [Difference; 2] = [
    Difference {
        tests: &["test_mrtr_behavior::old_protocol_rejects_input_required"],
        with: &[Http::Rmcp, Http::Endpoint, Http::Pushes],
        why: "on purpose: when a handler asks a client of the legacy era, rmcp answers with -32600, and `Rounds` with \
              a tool error",
    },
    Difference {
        tests: &[
            "test_custom_headers::origin_validation::empty_allowed_origins_preserves_disabled_validation",
            "test_custom_headers::origin_validation::enabled_empty_allowlist_forbids_present_origin",
            "test_custom_headers::origin_validation::explicitly_disabled_validation_allows_present_origin",
            "test_custom_headers::origin_validation::scheme_mismatch_is_forbidden",
            "test_custom_headers::test_server_validates_host_when_origin_validation_is_disabled_by_default",
        ],
        with: &[Http::Endpoint],
        why: "on purpose: an endpoint serves pages of its own hosts and of the origins listed, and no other pages",
    },
];

/// The HTTP implementation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Http {
    /// rmcp's `StreamableHttpService`.
    Rmcp,
    /// The `Endpoint` of rounds-http.
    Endpoint,
    /// rmcp's again, and every handler's peer is a stand-in for modern clients.
    Pushes,
}

/// A difference in the behaviour of a wrapped server.
pub(super) struct Difference {
    /// The tests that show it.
    pub(super) tests: &'static [&'static str],
    pub(super) with: &'static [Http],
    pub(super) why: &'static str,
}

/// The tests that are expected to fail, each with the reason.
pub(super) fn different(http: Http) -> impl Iterator<Item = (&'static str, &'static str)> {
    let differences = DIFFERENT.iter().filter(move |difference| difference.with.contains(&http));
    differences.flat_map(|difference| difference.tests.iter().map(|test| (*test, difference.why)))
}

/// Files that are not compiled, and why.
pub(super) const LEFT_OUT: [(&str, &str); 5] = [
    ("test_live_oauth_refresh", "needs a Keycloak; rmcp marks its tests as ignored too"),
    (
        "test_local_client_handler",
        "needs the feature `local`, with which handlers are not `Send` and `Rounds` cannot wrap them",
    ),
    ("test_streamable_http_connection_reuse", "fails when a call takes 20 ms, which happens on a busy machine"),
    ("test_with_js", "needs npm and the network"),
    ("test_with_python", "needs Python, `uv` and the network"),
];

/// A change to the text of a file.
pub(super) struct Edit {
    pub(super) file: &'static str,
    /// How often the text occurs in the file.
    pub(super) times: usize,
    pub(super) from: &'static str,
    pub(super) to: &'static str,
}

const fn edit(file: &'static str, from: &'static str, to: &'static str) -> Edit {
    Edit { file, times: 1, from, to }
}

/// Lets a client declare all capabilities.
macro_rules! declare {
    ($file:literal, $client:literal) => {
        edit(
            $file,
            concat!("impl ClientHandler for ", $client, " {\n"),
            concat!(
                "impl ClientHandler for ",
                $client,
                " {\n    fn get_info(&self) -> rmcp::model::ClientConfig {\n        rmcp::declare_everything()\n    }\n",
            ),
        )
    };
}

pub(super) const EDITS: [Edit; 7] = [
    // These clients answer questions without declaring that they can. rmcp asks them anyway; `Rounds` never asks such a
    // client.
    declare!("test_mrtr_behavior", "MrtrClient"),
    declare!("test_abandoned_request_cancel", "ProbeClient"),
    // All servers that are passed here are handlers, and only a handler can be wrapped.
    edit("test_mrtr_behavior", "    S: Service<RoleServer>,\n", "    S: rmcp::ServerHandler,\n"),
    // This server is not a handler, and is not wrapped.
    edit(
        "test_subscriptions",
        "        let server = MalformedAcknowledgmentServer {\n",
        "        use upstream::ServiceExt as _;\n        let server = MalformedAcknowledgmentServer {\n",
    ),
    // These tests start their own process again for one test. Here a test's name begins with that of its file.
    edit(
        "test_cancelled_response",
        ".arg(\"cancelled_response_helper\")",
        ".arg(\"test_cancelled_response::cancelled_response_helper\")",
    ),
    edit(
        "test_stdio_response_concurrency",
        ".arg(\"stdio_response_concurrency_helper\")",
        ".arg(\"test_stdio_response_concurrency::stdio_response_concurrency_helper\")",
    ),
    // These compare timeouts of 75 ms with progress every 50 ms. In real time they fail on a busy machine.
    Edit {
        file: "test_request_timeout_progress",
        times: 6,
        from: "#[tokio::test]",
        to: "#[tokio::test(start_paused = true)]",
    },
];
