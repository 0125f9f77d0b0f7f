//! Our own client: a task is one more way a call can wait.

use std::{pin::pin, time::Duration};

use rmcp::{RoleClient, ServiceExt as _, object, service::RunningService};
use rounds::{
    Rounds,
    client::{
        Call, DriveError, DriveLimits, DriveOutcome, Host, Pending, Scripted, SendError, Sent, Server, Start,
        UserAnswer, drive, scripted,
    },
    tasks::Tasks,
};

use super::{Scene, Shop};

type Connected = RunningService<RoleClient, Host<Scripted>>;

fn responder() -> Scripted {
    scripted().answer("size", UserAnswer::Form(object!({"size": 4})))
}

/// A host that polls tasks, and knows the size.
pub(super) async fn host(server: &Rounds<Shop>) -> Connected {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let server = server.clone();
    tokio::spawn(async move { server.serve(theirs).await.unwrap().waiting().await });
    Host::new(responder()).with_tasks().connect(ours).await.unwrap()
}

/// Drives a call while the clock moves.
async fn driven(scene: &Scene, client: &Connected, start: impl Into<Start>) -> Result<DriveOutcome, DriveError> {
    let (responder, server) = (responder(), Server::from(client).clock(scene.clock.clone()));
    let mut driven = pin!(drive(server, start, &responder, DriveLimits::default()));
    loop {
        let rest = async {
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            ended = &mut driven => return ended,
            () = rest => scene.clock.advance(Duration::from_millis(100)),
        }
    }
}

fn text(outcome: Result<DriveOutcome, DriveError>) -> String {
    match outcome.unwrap() {
        DriveOutcome::Done(done) => done.text(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn every_shape_is_driven_through_its_task_with_its_effect_once() {
    for tool in ["linear", "durable", "guard", "steps", "declared", "peer"] {
        let scene = Scene::new(Tasks::at_once()).await;
        let client = host(&scene.server).await;
        let call = Call::tool(tool, object!({}));
        assert_eq!(text(driven(&scene, &client, call).await), "size 4", "{tool}");
        assert_eq!(scene.effects(), 1, "{tool}");
    }
}

#[tokio::test]
async fn a_task_is_saved_and_goes_on_over_another_connection() {
    let scene = Scene::new(Tasks::at_once()).await;
    let client = host(&scene.server).await;
    let Sent::Later(created) = Call::tool("durable", object!({})).send(&client).await.unwrap() else { panic!() };
    scene.until(created.task_id().unwrap(), "input_required").await;
    let Sent::Asks(asks) = created.send(&client).await.unwrap() else { panic!() };
    assert_eq!((asks.open(), asks.questions()[0].name()), (vec!["size.1"], "size"));
    for pending in [created, asks] {
        let saved = pending.to_json();
        assert!(saved.contains("\"version\":2"), "an older client does not take it for a call that waits in rounds");
        assert_eq!(Pending::from_json(&saved).unwrap(), pending);
    }
    let Sent::Later(created) = Call::tool("durable", object!({})).send(&client).await.unwrap() else { panic!() };
    let saved = created.to_json();
    drop(client);
    let client = host(&scene.server).await;
    assert_eq!(text(driven(&scene, &client, Pending::from_json(&saved).unwrap()).await), "size 4");
}

#[tokio::test]
async fn a_task_is_cancelled_and_says_so() {
    let scene = Scene::new(Tasks::at_once()).await;
    let client = host(&scene.server).await;
    let Sent::Later(task) = Call::tool("linear", object!({})).send(&client).await.unwrap() else { panic!() };
    scene.until(task.task_id().unwrap(), "input_required").await;
    task.cancel_task(&client).await.unwrap();
    assert!(matches!(task.send(&client).await, Err(SendError::TaskCancelled)));
    *scene.caller.lock().unwrap() = Some("bob");
    assert!(
        matches!(task.send(&client).await, Err(SendError::StateRefused(_))),
        "another caller's can only start over"
    );
}

#[tokio::test]
async fn an_error_of_a_task_is_that_of_the_call() {
    let scene = Scene::new(Tasks::at_once()).await;
    let client = host(&scene.server).await;
    assert_eq!(text(driven(&scene, &client, Call::tool("refuses", object!({}))).await), "sold out");
    let failed = driven(&scene, &client, Call::tool("breaks", object!({}))).await.unwrap_err();
    assert!(failed.to_string().contains("no such shop"), "{failed}");
}
