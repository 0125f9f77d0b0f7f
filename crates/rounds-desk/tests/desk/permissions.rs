//! Who may see the desk, who may act, and where it refuses to start.

use rmcp::ServerHandler;
use rounds::Rounds;
use rounds_desk::{Desk, DeskError, Permission, Visitor};
use serde_json::json;

use crate::stage::Stage;

struct Empty;
impl ServerHandler for Empty {}

/// `reader` may read, `operator` may do both.
fn check(visitor: &Visitor<'_>, permission: Permission) -> bool {
    match (visitor.principal().map(|principal| principal.as_str()), permission) {
        (Some("operator"), _) => true,
        (Some("reader"), permission) => permission == Permission::Read,
        _ => false,
    }
}

#[test]
fn off_loopback_a_desk_needs_a_check() {
    let server = Rounds::builder(Empty).register().build().unwrap();
    for address in ["0.0.0.0:80", "10.0.0.7:80", "[::]:80"] {
        let address = address.parse().unwrap();
        let refused = Desk::new(&server).service(address).unwrap_err();
        assert_eq!(refused, DeskError::NoCheck { address });
        assert!(Desk::new(&server).check(check).service(address).is_ok());
    }
    for address in ["127.0.0.1:80", "127.1.2.3:80", "[::1]:80"] {
        assert!(Desk::new(&server).service(address.parse().unwrap()).is_ok());
    }
}

#[test]
fn a_server_without_a_register_has_no_desk() {
    let refused = Desk::new(&Rounds::new(Empty)).service("127.0.0.1:80".parse().unwrap());
    assert_eq!(refused.unwrap_err(), DeskError::NoRegister);
}

#[tokio::test]
async fn a_desk_without_a_check_serves_loopback_names_only() {
    let stage = Stage::new();
    let status = async |host: &str| {
        let request = http::Request::get("/").header("host", host).body(String::new()).unwrap();
        stage.visit(request, None).await.status.as_u16()
    };
    for host in ["localhost", "localhost:8000", "127.0.0.1:8000", "[::1]:8000", "LOCALHOST"] {
        assert_eq!(status(host).await, 200, "{host}");
    }
    for host in ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.7", "0.0.0.0", ""] {
        assert_eq!(status(host).await, 403, "{host}");
    }
}

#[tokio::test]
async fn reading_and_acting_are_separate() {
    let stage = Stage::with(|desk| desk.check(check));
    stage.client().await.call("weather_h", json!({"location": "Oslo"})).await.asked();
    let flow = stage.get_as("operator", "/").await.link("weather_h");
    let cancel = format!("{flow}/cancel");

    let read = stage.get_as("reader", &flow).await;
    read.shows("Which units?").hides("Cancel flow");
    stage.get_as("reader", "/try").await.hides(">Call<").shows("you may not call tools");

    let offered = stage.get_as("operator", &flow).await;
    offered.shows("Cancel flow");
    // The reader has a token of its own, by whatever means, and still may not act.
    let fields: Vec<(&str, &str)> = vec![];
    let as_operator = stage.submit(&offered, &cancel, &fields);
    for name in ["reader", "stranger"] {
        let page = stage.post(&cancel, &[], Some(name)).await;
        assert_eq!(page.status, 403, "{name}");
    }
    stage.get_as("reader", &flow).await.shows(">waiting<");
    as_operator.await.shows(">cancelled<");
}

#[tokio::test]
async fn a_visitor_who_may_not_read_learns_nothing() {
    let stage = Stage::with(|desk| desk.check(check));
    stage.client().await.call("weather_h", json!({"location": "Oslo"})).await.asked();
    let flow = stage.get_as("operator", "/").await.link("weather_h");
    for path in ["/", "/try", "/events", "/try/0", &flow, "/flows/00000000000000000000000000000000", "/nothing"] {
        for name in [None, Some("stranger")] {
            let request = http::Request::get(path).body(String::new()).unwrap();
            let page = stage.visit(request, name).await;
            assert_eq!(page.status, 403, "{path}");
            page.hides("weather").hides("gallery").hides("Try it").hides("Which units?");
        }
    }
}

/// A permission is checked when the action is done, not only when it was offered.
#[tokio::test]
async fn a_permission_that_was_withdrawn_meanwhile_counts() {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };
    let may_act = Arc::new(AtomicBool::new(true));
    let now = may_act.clone();
    let check = move |_: &Visitor<'_>, permission| permission == Permission::Read || now.load(Ordering::Relaxed);
    let stage = Stage::with(|desk| desk.check(check));
    stage.client().await.call("weather_h", json!({"location": "Oslo"})).await.asked();
    let flow = stage.get("/").await.link("weather_h");
    let page = stage.get(&flow).await;
    may_act.store(false, Ordering::Relaxed);
    let refused = stage.submit(&page, &format!("{flow}/cancel"), &[]).await;
    assert_eq!(refused.status, 403);
    refused.shows("you may not act");
    stage.get(&flow).await.shows(">waiting<").hides("Cancel flow");
}
