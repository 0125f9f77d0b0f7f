//! How the caller waits, by what its request declares.

use rounds::{Era, tasks::Tasks};

use super::*;

/// The tools that ask for the same approval, one in each shape.
pub(super) const SHAPES: [&str; 4] = ["refund", "linear", "round", "steps"];

#[tokio::test]
async fn a_client_that_visits_pages_is_led_to_one_and_its_retry_brings_the_result() {
    for tool in SHAPES {
        let setup = Setup::new();
        let client = visitor(&setup.server).await;
        let asked = client.call(tool, order()).await.asked();
        assert_eq!(asked.message("approval"), "Refund 900 of o-1?", "{tool}");
        let question = setup.question().await;
        let request = &asked.result()["inputRequests"]["approval"]["params"];
        assert_eq!(request["url"], format!("{PAGE}/{}/approval", question.flow), "{tool}");
        assert_eq!(asked.result()["_meta"]["rounds/expiresInMs"], json!(3 * DAY.as_millis() as u64), "{tool}");
        setup.decide(Verdict::Approve).await;
        // What the client says of the page is not read.
        let retry = asked.decline("approval");
        assert_eq!(retry.send(&client).await.text(), "approved by grace", "{tool}");
        let equal = asked.accept("approval", json!({"decision": "denied", "by": "mallory", "at": 0, "reason": ""}));
        assert_eq!(equal.send(&client).await.text(), "approved by grace", "{tool}: the decision is what counts");
        assert_eq!(setup.shop.refunds(), 1, "{tool}");
    }
}

#[tokio::test]
async fn a_client_cannot_decide_itself() {
    for tool in SHAPES {
        let setup = Setup::new();
        let client = visitor(&setup.server).await;
        let decision = json!({"decision": "approved", "by": "grace", "at": 0});
        let uninvited = json!({"approval": {"action": "accept", "content": decision}});
        let params = json!({"name": tool, "arguments": order(), "inputResponses": uninvited});
        let asked = client.request("tools/call", params).await.asked();
        let retry = asked.accept("approval", decision);
        let held = client.start("tools/call", retry.into_parts().1).await;
        setup.hold_over(held).await.asked();
        assert_eq!(setup.shop.refunds(), 0, "{tool}");
    }
}

#[tokio::test]
async fn a_retry_without_a_decision_is_held_and_gets_the_same_state_back() {
    let setup = Setup::new();
    let client = visitor(&setup.server).await;
    let asked = client.call("refund", order()).await.asked();
    let held = client.start("tools/call", asked.accept("approval", json!({})).into_parts().1).await;
    let again = setup.hold_over(held).await.asked();
    assert_eq!(again.state(), asked.state());
    assert_eq!(again.result()["inputRequests"], asked.result()["inputRequests"]);
    let left = again.result()["_meta"]["rounds/expiresInMs"].as_u64().unwrap();
    assert_eq!(u128::from(left), (3 * DAY - Elsewhere::HOLD).as_millis());
    assert_eq!(setup.ledger.claims(), 0, "nothing was claimed");
    setup.decide(Verdict::Approve).await;
    assert_eq!(asked.decline("approval").send(&client).await.text(), "approved by grace");
}

#[tokio::test]
async fn how_long_a_retry_is_held_can_be_set() {
    let (shop, clock) = (Shop::new(), Clock::new());
    let elsewhere = settings().hold(Duration::from_secs(2));
    let server = builder(&shop, MemoryLedger::new(), &clock).elsewhere(elsewhere).build().unwrap();
    let client = visitor(&server).await;
    let asked = client.call("refund", order()).await.asked();
    let retry = client.start("tools/call", asked.accept("approval", json!({})).into_parts().1).await;
    let mut held = pin!(retry.finish());
    for left in [1999, 1] {
        settle().await;
        let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(held.as_mut().poll(cx))).await;
        assert!(polled.is_pending(), "{left}");
        clock.advance(Duration::from_millis(left));
    }
    assert_eq!(held.await.asked().state(), asked.state());
}

#[tokio::test]
async fn a_held_retry_ends_with_the_decision_as_soon_as_it_is_recorded() {
    let setup = Setup::new();
    let client = visitor(&setup.server).await;
    let asked = client.call("refund", order()).await.asked();
    let held = client.start("tools/call", asked.accept("approval", json!({})).into_parts().1).await;
    settle().await;
    setup.decide(Verdict::deny_because("too much")).await;
    assert_eq!(held.finish().await.text(), "denied by grace: too much", "and no time has passed");
}

#[tokio::test]
async fn a_client_gets_a_reference_one_round_before_it_gives_up() {
    let setup = Setup::new();
    let client = visitor(&setup.server).await;
    let mut asked = client.call("refund", order()).await.asked();
    for _ in 2..Elsewhere::ROUNDS {
        let held = client.start("tools/call", asked.accept("approval", json!({})).into_parts().1).await;
        asked = setup.hold_over(held).await.asked();
    }
    let held = client.start("tools/call", asked.accept("approval", json!({})).into_parts().1).await;
    let ended = setup.hold_over(held).await;
    assert!(ended.is_tool_error());
    setup.decide(Verdict::Approve).await;
    assert_eq!(fetch(&client, &reference(&ended.text())).await.text(), "approved by grace");
}

#[tokio::test]
async fn a_client_with_neither_gets_a_reference_at_once_and_fetches_the_outcome_later() {
    for (era, tool) in [Era::Modern, Era::Legacy].into_iter().flat_map(|era| SHAPES.map(|tool| (era, tool))) {
        let setup = Setup::new();
        let client = Client::connect(setup.server.clone(), era, json!({})).await;
        let ended = client.call(tool, order()).await;
        let (text, context) = (ended.text(), format!("{era:?} {tool}"));
        assert!(ended.is_tool_error() && text.contains("Refund 900 of o-1?") && text.contains("flow_result"), "{text}");
        let reference = reference(&text);
        let waiting = client.start("tools/call", json!({"name": "flow_result", "arguments": {"reference": reference}}));
        let waiting = waiting.await;
        let still = setup.hold_over(waiting).await;
        assert!(still.is_tool_error() && still.text().contains(&reference), "{context}: {}", still.text());
        setup.decide(Verdict::Approve).await;
        for _ in 0..2 {
            assert_eq!(fetch(&client, &reference).await.text(), "approved by grace", "{context}");
        }
        assert_eq!(setup.shop.refunds(), 1, "{context}");
    }
}

#[tokio::test]
async fn a_legacy_client_that_visits_pages_is_pushed_one_while_its_call_is_in_flight() {
    for tool in SHAPES {
        let setup = Setup::new();
        let client = Client::connect(setup.server.clone(), Era::Legacy, json!({"elicitation": {"url": {}}})).await;
        let call = client.start("tools/call", json!({"name": tool, "arguments": order()})).await;
        let pushed = client.pushed().await.unwrap();
        assert_eq!(pushed.params()["message"], "Refund 900 of o-1?", "{tool}");
        assert!(pushed.params()["url"].as_str().unwrap().starts_with(PAGE), "{tool}");
        pushed.answer(json!({"action": "decline"})).await;
        setup.decide(Verdict::Approve).await;
        assert_eq!(call.finish().await.text(), "approved by grace", "{tool}");
        assert_eq!(setup.shop.refunds(), 1, "{tool}");
    }
}

/// A server whose calls become tasks, and a client that can poll them and nothing else.
async fn polled(tasks: Tasks) -> (Setup, Client) {
    let (shop, ledger, clock) = (Shop::new(), MemoryLedger::new(), Clock::new());
    let server = builder(&shop, ledger.clone(), &clock).tasks(tasks).build().unwrap();
    let declared = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    let client = Client::connect(server.clone(), Era::Modern, declared).await;
    (Setup { shop, ledger, clock, server }, client)
}

/// Polls until the task says this of its status, and returns the task.
async fn poll(client: &Client, id: &Value, says: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..1000 {
        let task = client.request("tasks/get", json!({"taskId": id})).await.result().clone();
        if says(&task) {
            return task;
        }
        settle().await;
    }
    panic!("the task never comes there");
}

#[tokio::test]
async fn a_task_works_while_it_waits_for_the_decision_and_says_what_it_waits_for() {
    for (tool, tasks) in SHAPES.into_iter().flat_map(|tool| [(tool, Tasks::at_once()), (tool, Tasks::after(DAY))]) {
        let (setup, client) = polled(tasks).await;
        let created = client.call(tool, order()).await.result().clone();
        assert_eq!(created["resultType"], "task", "{tool} {tasks:?}: {created}");
        let waits = poll(&client, &created["taskId"], |task| task["statusMessage"].is_string()).await;
        assert_eq!(waits["status"], "working", "{tool} {tasks:?}");
        assert_eq!(waits["statusMessage"], "Another person has to decide: Refund 900 of o-1?", "{tool} {tasks:?}");
        setup.decide(Verdict::Approve).await;
        let ended = poll(&client, &created["taskId"], |task| task["status"] == "completed").await;
        assert_eq!(ended["result"]["content"][0]["text"], "approved by grace", "{tool} {tasks:?}");
        assert_eq!(setup.shop.refunds(), 1, "{tool} {tasks:?}");
    }
}

#[tokio::test]
async fn a_cancelled_task_withdraws_its_question() {
    let (setup, client) = polled(Tasks::at_once()).await;
    let created = client.call("refund", order()).await.result().clone();
    poll(&client, &created["taskId"], |task| task["statusMessage"].is_string()).await;
    let question = setup.question().await;
    let cancelled = client.request("tasks/cancel", json!({"taskId": created["taskId"]})).await;
    assert_eq!(cancelled.result(), &json!({"resultType": "complete"}));
    poll(&client, &created["taskId"], |task| task["status"] == "cancelled").await;
    let decided = setup.server.flows().decide(&question, Verdict::Approve, &grace(), Way::Library).await;
    assert!(decided.is_err(), "{decided:?}");
    assert_eq!(setup.shop.refunds(), 0);
}

#[tokio::test]
async fn the_tool_for_outcomes_is_listed_and_bound_to_the_principal() {
    let (shop, clock) = (Shop::new(), Clock::new());
    let server = builder(&shop, MemoryLedger::new(), &clock).principal(Principal::from_request).build().unwrap();
    let ada = Client::signed_in(server.clone(), Era::Modern, Principal::new("ada")).await.declaring(json!({}));
    let tools = ada.request("tools/list", json!({})).await;
    let names: Vec<_> = tools.result()["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert!(names.contains(&&json!("flow_result")), "{names:?}");
    let reference = reference(&ada.call("refund", order()).await.text());
    let question = open(&server.flows()).await;
    server.flows().decide(&question, Verdict::Approve, &grace(), Way::Library).await.unwrap();
    let mallory = Client::signed_in(server.clone(), Era::Modern, Principal::new("mallory")).await;
    let refused = fetch(&mallory, &reference).await;
    assert!(refused.is_tool_error() && refused.text().contains("no call with this reference"), "{}", refused.text());
    assert_eq!(fetch(&ada, &reference).await.text(), "approved by grace");
    assert_eq!(shop.refunds(), 1);
}

#[tokio::test]
async fn a_form_is_filled_in_elsewhere_and_checked_when_it_is_decided() {
    for tool in ["discount", "discount_linear", "discount_round", "discount_steps"] {
        let setup = Setup::new();
        let client = visitor(&setup.server).await;
        let asked = client.call(tool, order()).await.asked();
        let question = setup.question().await;
        assert_eq!(question.schema.as_ref().unwrap()["properties"]["percent"]["type"], "integer", "{tool}");
        let (flows, by) = (setup.server.flows(), grace());
        for wrong in [json!({}), json!({"percent": "many"}), json!({"percent": -1}), json!(5)] {
            let refused = flows.decide(&question, Verdict::Answer(wrong), &by, Way::Desk).await.unwrap_err();
            assert!(matches!(refused, rounds::elsewhere::DecideError::Invalid(_)), "{tool}: {refused}");
        }
        flows.decide(&question, Verdict::Answer(json!({"percent": 15})), &by, Way::Desk).await.unwrap();
        let text = asked.accept("percent", json!({"percent": 99})).send(&client).await.text();
        assert_eq!(text, "15 percent", "{tool}");
    }
}

#[tokio::test]
async fn a_page_of_the_authors_own_completes_its_question_once() {
    let setup = Setup::new();
    let client = visitor(&setup.server).await;
    let asked = client.call("sign_in", json!({})).await.asked();
    let url = asked.result()["inputRequests"]["account"]["params"]["url"].as_str().unwrap().to_owned();
    let name = url.strip_prefix("https://shop.example/sign-in?question=").unwrap();
    let flows = setup.server.flows();
    let shown = flows.question_of_page(name).await.unwrap().unwrap();
    assert_eq!((&*shown.message, shown.key.as_str()), ("Sign in", "account"));
    assert!(flows.complete("guessed", json!("mallory"), None).await.is_err());
    assert!(flows.decide(&shown, Verdict::Answer(json!("mallory")), &grace(), Way::Desk).await.is_err());
    flows.complete(name, json!("ada-4711"), None).await.unwrap();
    let second = flows.complete(name, json!("mallory"), None).await.unwrap_err();
    assert!(matches!(second, rounds::elsewhere::DecideError::AlreadyDecided { .. }), "{second}");
    assert_eq!(asked.accept("account", json!({})).send(&client).await.text(), "signed in as ada-4711");
}

#[tokio::test]
async fn without_a_decision_in_time_the_question_fails_or_is_expired_as_the_author_says() {
    for (tool, outcome) in [("refund", "The user did not answer in time: Refund 900 of o-1?"), ("lenient", "expired")] {
        let setup = Setup::new();
        let client = visitor(&setup.server).await;
        let asked = client.call(tool, order()).await.asked();
        let question = setup.question().await;
        setup.clock.advance(3 * DAY);
        let late = setup.server.flows().decide(&question, Verdict::Approve, &grace(), Way::Library).await;
        assert!(matches!(late, Err(rounds::elsewhere::DecideError::Expired)), "{late:?}");
        assert_eq!(asked.accept("approval", json!({})).send(&client).await.text(), outcome);
        let late = setup.server.flows().decide(&question, Verdict::Approve, &grace(), Way::Library).await;
        assert!(matches!(late, Err(rounds::elsewhere::DecideError::AlreadyDecided { .. })), "{late:?}");
        assert_eq!(setup.shop.refunds(), 0);
    }
}

#[tokio::test]
async fn a_decision_in_time_counts_when_the_client_comes_after_it() {
    let setup = Setup::new();
    let client = visitor(&setup.server).await;
    let asked = client.call("refund", order()).await.asked();
    setup.clock.advance(3 * DAY - Duration::from_secs(1));
    setup.decide(Verdict::Approve).await;
    setup.clock.advance(Duration::from_secs(60));
    assert_eq!(asked.accept("approval", json!({})).send(&client).await.text(), "approved by grace");
}

#[tokio::test]
async fn a_durable_flow_waits_for_days_with_nothing_in_memory_and_continues_on_another_instance() {
    let setup = Setup::new();
    let client = visitor(&setup.server).await;
    let asked = client.call("refund", order()).await.asked();
    assert_eq!(setup.server.waiting_calls(), 0);
    setup.clock.advance(2 * DAY);
    let flows = Flows::open(setup.ledger.clone(), &keys(), Some("shop")).unwrap().with_roles(roles);
    let other = builder(&setup.shop, setup.ledger.clone(), &setup.clock).build().unwrap();
    drop(flows);
    let question = open(&other.flows()).await;
    other.flows().decide(&question, Verdict::Approve, &grace(), Way::Library).await.unwrap();
    let client = visitor(&other).await;
    assert_eq!(asked.accept("approval", json!({})).send(&client).await.text(), "approved by grace");
}
