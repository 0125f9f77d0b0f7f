//! Runs the client's example.

use gallery::Gallery;
use rounds::Rounds;

#[allow(dead_code, reason = "an example has a `main` of its own")]
#[path = "../../examples/client_dual_path.rs"]
mod client_dual_path;

#[tokio::test]
async fn one_function_answers_a_modern_server_and_one_that_knows_only_the_past() {
    let server = Rounds::new(Gallery::new());
    let modern = client_dual_path::weather(server.clone()).await.unwrap();
    assert_eq!(modern, "Weather in Paris: 22°C, partly cloudy.");
    assert_eq!(client_dual_path::weather(client_dual_path::Old(server.clone())).await.unwrap(), modern);
    assert_eq!(server.handler().audited()["weather_h"], 2);
}

#[test]
fn the_example_stays_short() {
    assert!(include_str!("../../examples/client_dual_path.rs").lines().count() < 60);
}
