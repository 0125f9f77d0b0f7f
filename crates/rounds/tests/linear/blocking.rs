//! Questions in calls that block a thread: an error at once if the handler's own thread is blocked, and an answer
//! everywhere else.

use std::{
    pin::Pin,
    sync::mpsc,
    task::{Context, Poll},
    time::Duration,
};

use futures::{
    FutureExt as _, StreamExt as _,
    stream::{self, FuturesUnordered},
};
use rmcp::{ServerHandler, handler::server::router::tool::ToolRouter, schemars, tool_handler};
use rounds::{Ask, Durable, FlowError, Rounds, durable, test::Client, time::BoxFuture};
use serde_json::json;
use tokio::{runtime::Handle, task};

use super::{Count, Units, stage, units};

/// The ways to block the thread that runs a handler until a question is answered.
const BLOCKING: [fn(Ask) -> Result<String, FlowError>; 4] = [
    |ask| task::block_in_place(|| Handle::current().block_on(units(ask))),
    |ask| futures::executor::block_on(units(ask)),
    |ask| task::block_in_place(|| tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(units(ask))),
    // Inside a future that has a waker of its own.
    |ask| {
        let many = FuturesUnordered::from_iter([units(ask)]);
        let mut said = futures::executor::block_on(many.collect::<Vec<_>>());
        said.remove(0)
    },
];

/// A call that takes longer than this hangs.
async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("it hangs")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_that_blocks_the_thread_of_its_handler_fails_at_once_in_both_eras() {
    for block in BLOCKING {
        let stage = stage(move |ask: Ask| async move {
            tokio::task::yield_now().await;
            match block(ask) {
                Err(FlowError::Blocked) => Err(FlowError::Blocked),
                other => panic!("{other:?}"),
            }
        });
        for client in [Client::modern(stage.server.clone()).await, Client::legacy(stage.server.clone()).await] {
            let error = in_time(client.call("x", json!({}))).await.error().clone();
            assert_eq!(error["code"], -32603);
            assert!(error["message"].as_str().unwrap().contains("`tokio::task::spawn_blocking`"), "{error}");
            assert!(!client.was_pushed());
        }
        assert_eq!(stage.server.waiting_calls(), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_was_told_so_can_still_ask_as_it_should() {
    for block in BLOCKING {
        let stage = stage(move |ask: Ask| async move {
            assert!(matches!(block(ask.clone()), Err(FlowError::Blocked)));
            let first = units(ask.clone()).await?;
            // It has waited, and continues in another leg.
            assert!(matches!(block(ask.clone()), Err(FlowError::Blocked)));
            Ok(format!("{first} {}", units(ask).await?))
        });
        let client = Client::modern(stage.server.clone()).await;
        let asked = in_time(client.call("x", json!({}))).await.asked();
        let asked = in_time(asked.accept("units", json!({"units": "metric"})).send(&client)).await.asked();
        let said = in_time(asked.accept("units", json!({"units": "imperial"})).send(&client)).await;
        assert_eq!(said.text(), "Metric Imperial");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_that_blocks_its_handler_between_two_legs_fails_at_once_too() {
    let told = Count::default();
    let counted = told.clone();
    let stage = stage(move |ask: Ask| {
        let told = counted.clone();
        async move {
            let blocks = async {
                // The first question is not answered: this runs when its leg has ended.
                tokio::time::sleep(Duration::from_millis(1)).await;
                assert!(matches!(BLOCKING[0](ask.clone()), Err(FlowError::Blocked)));
                told.up();
                std::future::pending::<()>().await;
            };
            tokio::select! {
                said = units(ask.clone()) => said,
                () = blocks => unreachable!("it is pending"),
            }
        }
    });
    let client = Client::modern(stage.server.clone()).await;
    let asked = in_time(client.call("x", json!({}))).await.asked();
    in_time(told.reaches(1)).await;
    assert_eq!(asked.accept("units", json!({"units": "metric"})).send(&client).await.text(), "Metric");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_durable_question_that_blocks_its_handler_fails_at_once() {
    struct Shop(ToolRouter<Self>);
    #[tool_handler(router = self.0)]
    impl ServerHandler for Shop {}
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Nothing {}
    async fn blocks(flow: Durable<Shop>, _: Nothing) -> Result<String, FlowError> {
        let question = flow.form::<Units>("Which units?").into_future();
        task::block_in_place(|| Handle::current().block_on(question)).map(|units| format!("{units:?}"))
    }
    let server = Rounds::new(Shop(ToolRouter::new().with_route(durable("x", "", blocks))));
    for client in [Client::modern(server.clone()).await, Client::legacy(server).await] {
        let error = in_time(client.call("x", json!({}))).await.error().clone();
        assert!(error["message"].as_str().unwrap().contains("`tokio::task::spawn_blocking`"), "{error}");
    }
}

type Answered = BoxFuture<'static, Result<String, FlowError>>;

/// The ways to wait for a question with another waker than the handler's, in order.
const COMBINED: [fn(Ask) -> Answered; 9] = [
    |ask| Box::pin(async { FuturesUnordered::from_iter([units(ask)]).next().await.expect("there is one") }),
    |ask| {
        let inner = FuturesUnordered::from_iter([units(ask)]).collect::<Vec<_>>();
        Box::pin(async { FuturesUnordered::from_iter([inner]).next().await.expect("there is one").remove(0) })
    },
    |ask| {
        let busy = std::iter::repeat_with(|| -> Answered {
            Box::pin(async {
                tokio::task::yield_now().await;
                Ok(String::new())
            })
        });
        let all = busy.take(40).chain([Box::pin(units(ask)) as _]);
        let all = futures::future::join_all(all.collect::<Vec<_>>());
        Box::pin(async { all.await.pop().expect("there is one") })
    },
    |ask| Box::pin(async { stream::iter([units(ask)]).buffer_unordered(2).next().await.expect("there is one") }),
    |ask| {
        let shared = async { units(ask).await.map_err(|error| error.to_string()) }.boxed().shared();
        Box::pin(async { tokio::join!(shared.clone(), shared).0.map_err(FlowError::failed) })
    },
    |ask| Box::pin(async { tokio::spawn(units(ask)).await.expect("it does not panic") }),
    |ask| {
        let here = Handle::current();
        Box::pin(
            async move { task::spawn_blocking(move || here.block_on(units(ask))).await.expect("it does not panic") },
        )
    },
    |ask| {
        let (said, comes) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || said.send(futures::executor::block_on(units(ask))));
        Box::pin(async { comes.await.expect("it does not panic") })
    },
    |ask| {
        Box::pin(async move {
            assert!(units(ask.clone()).now_or_never().is_none(), "the question is not answered at once");
            units(ask).await
        })
    },
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_is_answered_whatever_it_is_combined_with_and_wherever_else_it_blocks() {
    for (way, combine) in COMBINED.into_iter().enumerate() {
        let stage = stage(combine);
        let client = Client::modern(stage.server.clone()).await;
        let asked = in_time(client.call("x", json!({}))).await.asked();
        let said = in_time(asked.accept("units", json!({"units": "metric"})).send(&client)).await;
        assert_eq!(said.text(), "Metric", "{way}");

        let client = Client::legacy(stage.server.clone()).await;
        let leg = client.start("tools/call", json!({"name": "x"})).await;
        let answer = json!({"action": "accept", "content": {"units": "imperial"}});
        in_time(client.pushed()).await.unwrap().answer(answer).await;
        assert_eq!(in_time(leg.finish()).await.text(), "Imperial", "{way}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_that_was_polled_before_fails_when_it_is_then_waited_for_in_a_blocking_call() {
    let (sender, polled) = mpsc::channel();
    let stage = stage(move |ask: Ask| {
        let sender = sender.clone();
        async move {
            let mut question = Box::pin(units(ask));
            let first =
                std::future::poll_fn(|cx: &mut Context<'_>| Poll::Ready(Pin::new(&mut question).poll(cx))).await;
            sender.send(first.is_pending()).unwrap();
            task::block_in_place(|| Handle::current().block_on(question))
        }
    });
    let client = Client::modern(stage.server.clone()).await;
    let said = in_time(client.call("x", json!({}))).await;
    assert_eq!(said.error()["code"], -32603);
    assert!(polled.recv().unwrap());
}
