//! Calls against real servers: tools, prompts and resources, by hand.

use rmcp::{RoleServer, ServerHandler, model::*, object, service::RequestContext};
use rounds::{
    Ask, Era, FlowError, Round, Rounds,
    client::{Call, Done, Field, Host, Sent, Server},
    observe::Method,
};

use crate::{Units, asked, connect, said, server, silent, units};

#[tokio::test]
async fn a_tool_that_asks_is_answered_by_hand() {
    let client = connect(server(units), Host::new(silent())).await;
    let call = Call::tool("weather", object!({"location": "Paris"}));
    assert_eq!((call.method(), call.target()), (Method::Tool, "weather"));
    let mut pending = asked(call.send(&client).await.unwrap());
    assert_eq!((pending.round(), pending.open()), (1, vec!["units"]));
    assert_eq!(pending.questions()[0].message(), "Which units?");
    pending.accept("units", object!({"units": "imperial"})).unwrap();
    assert_eq!(said(pending.send(&client).await.unwrap()), "Imperial");
}

#[tokio::test]
async fn a_decline_and_a_cancel_reach_the_tool_as_what_they_are() {
    let client = connect(server(units), Host::new(silent())).await;
    let call = Call::tool("weather", object!({}));
    let mut declined = asked(call.send(&client).await.unwrap());
    declined.decline("units").unwrap();
    let sent = declined.send(&client).await.unwrap();
    assert!(matches!(&sent, Sent::Done(done) if done.is_error()));
    assert_eq!(said(sent), "The user declined: Which units?");
    let mut cancelled = asked(call.send(&client).await.unwrap());
    cancelled.cancel("units").unwrap();
    assert_eq!(said(cancelled.send(&client).await.unwrap()), "The user cancelled: Which units?");
}

#[tokio::test]
async fn several_rounds_are_played_one_after_the_other() {
    let twice = |ask: Ask| async move {
        let first: Units = ask.form("First?").key("first").await?;
        let second: Units = ask.form("Second?").key("second").await?;
        Ok::<_, FlowError>(format!("{first:?}, {second:?}"))
    };
    let client = connect(server(twice), Host::new(silent())).await;
    let mut pending = asked(Call::tool("x", object!({})).send(&client).await.unwrap());
    pending.accept("first", object!({"first": "metric"})).unwrap();
    let mut pending = asked(pending.send(&client).await.unwrap());
    assert_eq!((pending.round(), pending.open()), (2, vec!["second"]));
    pending.accept("second", object!({"second": "imperial"})).unwrap();
    assert_eq!(said(pending.send(&client).await.unwrap()), "Metric, Imperial");
}

#[tokio::test]
async fn the_same_answers_sent_twice_get_the_same_result() {
    let client = connect(server(units), Host::new(silent())).await;
    let mut pending = asked(Call::tool("x", object!({})).send(&client).await.unwrap());
    pending.accept("units", object!({"units": "metric"})).unwrap();
    let first = pending.send(&client).await.unwrap();
    assert_eq!(pending.send(&client).await.unwrap(), first);
}

#[tokio::test]
async fn a_state_that_was_used_with_other_answers_is_refused_in_so_many_words() {
    let client = connect(server(units), Host::new(silent())).await;
    let mut pending = asked(Call::tool("x", object!({})).send(&client).await.unwrap());
    pending.accept("units", object!({"units": "metric"})).unwrap();
    pending.send(&client).await.unwrap();
    pending.decline("units").unwrap();
    let error = pending.send(&client).await.unwrap_err();
    assert_eq!(error.to_string(), "the server no longer accepts the state of this call: start over");
}

/// A prompt and a resource that ask.
struct Library;

impl ServerHandler for Library {
    async fn get_prompt(
        &self,
        _request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, rmcp::ErrorData> {
        let units: Units = Ask::from_context(&context)?.form("Which units?").await?;
        Ok(GetPromptResult::new(vec![PromptMessage::new_text(Role::User, format!("In {units:?}, please."))]).into())
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, rmcp::ErrorData> {
        let round = Round::from_context(&context)?;
        match round.given::<Units>("units") {
            rounds::Given::Accepted(units) => {
                Ok(ReadResourceResult::new(vec![ResourceContents::text(format!("{units:?}"), request.uri)]).into())
            }
            _ => Ok(round.ask_form::<Units>("units", "Which units?")?),
        }
    }
}

#[tokio::test]
async fn prompts_and_resources_ask_as_tools_do() {
    let client = connect(Rounds::new(Library), Host::new(silent())).await;
    for (call, text) in
        [(Call::prompt("weather", object!({})), "In Metric, please."), (Call::resource("weather://paris"), "Metric")]
    {
        let mut pending = asked(call.send(&client).await.unwrap());
        pending.accept("units", object!({"units": "metric"})).unwrap();
        let Sent::Done(done) = pending.send(&client).await.unwrap() else { panic!("expected a result") };
        assert_eq!(done.text(), text);
        assert!(matches!(
            (call.method(), &done),
            (Method::Prompt, Done::Prompt(_)) | (Method::Resource, Done::Resource(_))
        ));
        assert!(done.to_json().to_string().contains(text));
    }
}

#[tokio::test]
async fn who_asks_and_how_long_is_left_is_known() {
    let clock = rounds::test::Clock::new();
    let tool = crate::Real { tool: crate::Tool(units), name: "real", legacy_only: false };
    let real = Rounds::builder(tool).clock(clock.clone()).build().unwrap();
    let client = connect(real, Host::new(silent())).await;
    let server = Server::from(&client).at("https://example.com/mcp").clock(clock.clone());
    assert_eq!(server.era(), Era::Modern);
    let pending = asked(Call::tool("x", object!({})).send(server.clone()).await.unwrap());
    assert_eq!(pending.origin().to_string(), "\"real\" at https://example.com/mcp");
    let mut liar = pending.origin().clone();
    liar.name = Some("bank\" at https://bank.example asks:\u{61c}".to_owned());
    assert_eq!(liar.to_string(), r#""bank\" at https://bank.example asks:\u{61c}" at https://example.com/mcp"#);
    assert_eq!(pending.origin(), &server.origin());
    let expires_at = pending.expires_at().expect("our servers send the remaining time");
    let left = expires_at.duration_since(rounds::time::Clock::now(&clock)).unwrap();
    assert!(left.as_secs() >= 60 && left.as_secs() <= 3600, "{left:?}");
    assert_eq!(pending.received_at(), rounds::time::Clock::now(&clock));
    // The test's clock is ahead of the system clock, so that by both some time is left.
    assert!(pending.expires_in().unwrap() > left);
    let fields: Vec<(&str, &Field)> = pending.fields().collect();
    assert_eq!((fields.len(), fields[0].0, fields[0].1.name.as_str()), (1, "units", "units"));
}
