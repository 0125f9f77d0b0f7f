//! What an operator sees when a leg fails: one line that says of which flow it was and why, and a client that can name the flow.

use serde_json::Value;

use crate::{
    Fleet, Redis,
    call::{Call, asks_for_a_retry},
    in_time,
    instance::rounds,
    store::Store,
};

#[tokio::test]
async fn a_failed_leg_is_one_line_with_flow_tool_round_instance_and_cause() {
    let redis = Redis::start();
    let _: String = redis.ask("ACL SETUSER ann on >secret ~* &* +@all", &[]).await;
    let url = format!("{}?user=ann&pass=secret", redis.url());
    let fleet = Fleet::on(Store::Redis(redis), crate::Keys::new(&[1]), [&url; 3]).await;
    let call = Call::weather("weather_e");
    let answer = call.metric(&fleet.send_to(0, &call).await.unwrap());
    let Store::Redis(redis) = &fleet.store else { unreachable!("it was made so") };
    let _: String = redis.ask("ACL SETUSER ann -evalsha -eval", &[]).await;

    let failed = in_time("a leg without rights", fleet.send_to(0, &answer)).await.unwrap();
    assert!(asks_for_a_retry(&failed), "{failed}");
    let flow = failed["error"]["data"]["flow"].as_str().expect("the flow, to be quoted");
    assert!(!failed.to_string().contains("permissions"), "the cause is not for the client: {failed}");
    fleet.log(0).says("a leg failed", 1).await;
    let lines = fleet.log(0).lines();
    let failures: Vec<_> = lines.iter().filter(|line| line.contains("a leg failed")).collect();
    let [line] = failures[..] else { panic!("{lines:#?}") };
    assert!(line.starts_with(r#"instance="a" "#), "every line begins with the name of its instance: {line}");
    for part in [
        &format!("flow={flow}"),
        r#"tool="weather_e""#,
        "round=1",
        r#" instance="a-"#,
        "code=-32603",
        "the ledger cannot be reached",
        "NoPerm: this user has no permissions",
    ] {
        assert!(line.contains(part), "{part} is missing in {line}");
    }
    assert!(lines.iter().all(|line| line.starts_with(r#"instance="a" "#) || !line.contains(" rounds: ")), "{lines:#?}");
}

#[tokio::test]
async fn open_shows_the_instance_that_a_token_names() {
    let fleet = Fleet::start().await;
    let asked = fleet.send_to(1, &Call::weather("weather_h")).await.unwrap();
    let token = asked["result"]["requestState"].as_str().unwrap();
    let mut open = rounds(&["open", token, "--key-file", fleet.keys.path()]);
    let opened = open.stdout(std::process::Stdio::piped()).output().await.unwrap();
    let shown = String::from_utf8(opened.stdout).unwrap();
    assert!(shown.lines().any(|line| line.contains("instance") && line.contains("b-")), "{shown}");
}

#[tokio::test]
async fn the_frozen_error_names_no_flow() {
    let fleet = Fleet::start().await;
    let call = Call::weather("weather_e");
    let asked = fleet.send(&call).await;
    let forged = call.answered(
        &serde_json::json!({"result": {"requestState": "r1.forged", "inputRequests": asked["result"]["inputRequests"]}}),
        Value::Object(Default::default()),
    );
    let refused = fleet.send(&forged).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    assert!(refused["error"]["data"].get("flow").is_none(), "{refused}");
}
