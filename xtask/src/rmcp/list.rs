//! What is known about the tests of rmcp 3.8.0: which do not run here, what is changed in their text, and which fail on purpose.
//! A new version of rmcp needs a look at all of it.

/// How many tests run, those that fail included. Another number means that a file was not compiled, or that rmcp has changed.
pub(super) const TESTS: usize = 673;

/// How many servers the tests start inside a `Rounds`: all but the one that an edit names. A smaller number means that a server was
/// started without.
pub(super) const SERVERS: usize = 263;

/// Tests that are expected to fail, and why. The table in `docs/interop.md` has them too.
pub(super) const DIFFERENT: [(&str, &str); 3] = [
    (
        "test_mrtr_behavior::old_protocol_rejects_input_required",
        "on purpose: when a handler asks a client of the legacy era, rmcp answers with -32600, and `Rounds` with a tool error",
    ),
    (
        "test_streamable_http_disconnect_cancel::stateless_json_client_disconnect_cancels_request",
        "a fault: when a client disconnects, the handler is dropped before it sees that its token was cancelled",
    ),
    (
        "test_streamable_http_disconnect_cancel::stateless_sse_client_disconnect_cancels_request",
        "a fault: when a client disconnects, the handler is dropped before it sees that its token was cancelled",
    ),
];

/// Files that are not compiled, and why.
pub(super) const LEFT_OUT: [(&str, &str); 4] = [
    ("test_live_oauth_refresh", "needs a Keycloak; rmcp marks its tests as ignored too"),
    (
        "test_local_client_handler",
        "needs the feature `local`, with which handlers are not `Send` and `Rounds` cannot wrap them",
    ),
    ("test_with_js", "needs npm and the network"),
    ("test_with_python", "needs Python, `uv` and the network"),
];

/// A change to the text of a file.
pub(super) struct Edit {
    pub(super) file: &'static str,
    /// Occurs once in the file.
    pub(super) from: &'static str,
    pub(super) to: &'static str,
}

const fn edit(file: &'static str, from: &'static str, to: &'static str) -> Edit {
    Edit { file, from, to }
}

/// Lets a client declare that it can be asked everything.
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

pub(super) const EDITS: [Edit; 6] = [
    // These clients answer questions and do not declare that they can. rmcp asks them anyway; ours never asks such a client.
    declare!("test_mrtr_behavior", "MrtrClient"),
    declare!("test_abandoned_request_cancel", "ProbeClient"),
    // All servers that come here are handlers, and only a handler can be wrapped.
    edit("test_mrtr_behavior", "    S: Service<RoleServer>,\n", "    S: rmcp::ServerHandler,\n"),
    // This server is not a handler, and stays as it is.
    edit(
        "test_subscriptions",
        "        let server = MalformedAcknowledgmentServer {\n",
        "        use upstream::ServiceExt as _;\n        let server = MalformedAcknowledgmentServer {\n",
    ),
    // These start the process that they are in again, for one test. Here a test's name begins with that of its file.
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
];
