//! Notifications: once for each question, tried again, recorded, and saying no more than the author allows.

use std::sync::Mutex;

use rounds::{
    Era,
    elsewhere::{Notice, Notified, Notify, NotifyError},
    tasks::Tasks,
    time::BoxFuture,
};

use super::*;

/// A chat: it fails so many times first, and keeps what it gets.
#[derive(Clone, Default)]
struct Chat {
    fails: Arc<AtomicUsize>,
    hangs: bool,
    attempts: Arc<AtomicUsize>,
    /// The id of each attempt.
    ids: Arc<Mutex<Vec<String>>>,
    got: Arc<Mutex<Vec<Notice>>>,
}

impl Chat {
    fn failing(times: usize) -> Self {
        Self { fails: Arc::new(AtomicUsize::new(times)), ..Self::default() }
    }

    fn attempts(&self) -> usize {
        self.attempts.load(Ordering::SeqCst)
    }

    fn got(&self) -> Vec<Notice> {
        self.got.lock().unwrap().clone()
    }
}

impl Notify for Chat {
    fn notify<'a>(&'a self, notice: &'a Notice) -> BoxFuture<'a, Result<(), NotifyError>> {
        self.attempts.fetch_add(1, Ordering::SeqCst);
        self.ids.lock().unwrap().push(notice.id.clone());
        let fails = self.fails.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        Box::pin(async move {
            if self.hangs {
                std::future::pending::<()>().await;
            }
            if fails {
                return Err(NotifyError::new("the chat is away"));
            }
            self.got.lock().unwrap().push(notice.clone());
            Ok(())
        })
    }
}

impl Setup {
    fn notifying(chat: &Chat, elsewhere: Elsewhere) -> Self {
        let (shop, ledger, clock) = (Shop::new(), MemoryLedger::new(), Clock::new());
        let server = builder(&shop, ledger.clone(), &clock).tasks_for("round", Tasks::at_once());
        let server = server.elsewhere(elsewhere.notify(chat.clone())).build().unwrap();
        Self { shop, ledger, clock, server }
    }

    async fn notified(&self, question: &QuestionElsewhere) -> Option<Notified> {
        self.server.flows().notified(question).await.unwrap()
    }
}

#[tokio::test]
async fn each_question_is_notified_once_however_its_caller_waits() {
    let tasks = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    for (era, tool, declared) in [
        (Era::Modern, "refund", json!({})),
        (Era::Modern, "refund", json!({"elicitation": {"url": {}}})),
        (Era::Modern, "round", tasks),
        (Era::Legacy, "linear", json!({})),
    ] {
        let chat = Chat::default();
        let setup = Setup::notifying(&chat, settings());
        let client = Client::connect(setup.server.clone(), era, declared).await;
        let _ = client.call(tool, order()).await;
        until(tool, async || chat.got().len() == 1).await;
        let question = setup.question().await;
        until(tool, async || matches!(setup.notified(&question).await, Some(Notified::Sent { attempts: 1, .. }))).await;
        setup.clock.advance(Duration::from_secs(3600));
        settle().await;
        assert_eq!(chat.attempts(), 1, "{tool}");
        setup.decide(Verdict::Approve).await;
        settle().await;
        assert_eq!(chat.attempts(), 1, "{tool}");
    }
}

#[tokio::test]
async fn a_retry_of_the_client_and_another_instance_do_not_notify_again() {
    let chat = Chat::default();
    let setup = Setup::notifying(&chat, settings());
    let client = visitor(&setup.server).await;
    let asked = client.call("refund", order()).await.asked();
    until("the notification", async || chat.got().len() == 1).await;
    let other = builder(&setup.shop, setup.ledger.clone(), &setup.clock);
    let other = other.elsewhere(settings().notify(chat.clone())).build().unwrap();
    let client = visitor(&other).await;
    let held = client.start("tools/call", asked.accept("approval", json!({})).into_parts().1).await;
    setup.hold_over(held).await.asked();
    setup.clock.advance(Duration::from_secs(3600));
    settle().await;
    assert_eq!(chat.attempts(), 1);
}

#[tokio::test]
async fn it_says_nothing_of_the_call_but_where_the_question_is() {
    let chat = Chat::default();
    let setup = Setup::notifying(&chat, settings());
    visitor(&setup.server).await.call("refund", order()).await.asked();
    until("the notification", async || chat.got().len() == 1).await;
    let (notice, question) = (chat.got().remove(0), setup.question().await);
    assert_eq!(notice.link, Some(format!("{PAGE}/{}/approval", question.flow)));
    let json = notice.to_json();
    let said = json!({
        "type": "question.asked",
        "data": {
            "id": notice.id, "flow": question.flow.to_string(), "key": "approval", "kind": "approval", "target": "refund",
            "link": notice.link, "until": question.until,
        },
    });
    assert_eq!(json, said, "neither the text, nor the arguments, nor the caller");
}

#[tokio::test]
async fn the_text_of_the_question_is_in_it_only_if_the_author_says_so() {
    let chat = Chat::default();
    let setup = Setup::notifying(&chat, settings().notify_with_text());
    visitor(&setup.server).await.call("refund", order()).await.asked();
    until("the notification", async || chat.got().len() == 1).await;
    assert_eq!(chat.got()[0].message.as_deref(), Some("Refund 900 of o-1?"));
}

#[tokio::test]
async fn the_address_of_a_page_that_completes_its_question_is_not_in_it() {
    let chat = Chat::default();
    let setup = Setup::notifying(&chat, settings().notify_with_text());
    let asked = visitor(&setup.server).await.call("sign_in", json!({})).await.asked();
    until("the notification", async || chat.got().len() == 1).await;
    let url = asked.result()["inputRequests"]["account"]["params"]["url"].as_str().unwrap().to_owned();
    let name = url.strip_prefix("https://shop.example/sign-in?question=").unwrap();
    assert_eq!(chat.got()[0].link, None);
    assert!(!chat.got()[0].to_json().to_string().contains(name));
}

#[tokio::test]
async fn a_chat_that_fails_twice_gets_it_the_third_time_after_one_second_and_two_more() {
    let chat = Chat::failing(2);
    let setup = Setup::notifying(&chat, settings());
    visitor(&setup.server).await.call("refund", order()).await.asked();
    let question = setup.question().await;
    for (attempts, pause) in [(1, 1), (2, 2)] {
        until("an attempt", async || chat.attempts() == attempts).await;
        settle().await;
        assert_eq!(setup.notified(&question).await, Some(Notified::Pending { attempts: attempts as u32 }));
        setup.clock.advance(Duration::from_secs(pause) - Duration::from_millis(1));
        settle().await;
        assert_eq!(chat.attempts(), attempts, "not before its time");
        setup.clock.advance(Duration::from_millis(1));
    }
    until("the third attempt", async || chat.got().len() == 1).await;
    until("the record", async || matches!(setup.notified(&question).await, Some(Notified::Sent { attempts: 3, .. })))
        .await;
}

#[tokio::test]
async fn a_chat_that_never_answers_is_given_up_after_twenty_attempts() {
    for chat in [Chat::failing(usize::MAX), Chat { hangs: true, ..Chat::default() }] {
        let setup = Setup::notifying(&chat, settings());
        visitor(&setup.server).await.call("refund", order()).await.asked();
        let question = setup.question().await;
        for _ in 0..2000 {
            setup.clock.advance(Duration::from_secs(30));
            settle().await;
        }
        assert_eq!(chat.attempts(), 20, "hangs: {}", chat.hangs);
        assert!(matches!(setup.notified(&question).await, Some(Notified::GivenUp { attempts: 20, .. })));
    }
}

#[tokio::test]
async fn a_question_that_is_decided_meanwhile_is_not_notified_any_more() {
    let chat = Chat::failing(1);
    let setup = Setup::notifying(&chat, settings());
    visitor(&setup.server).await.call("refund", order()).await.asked();
    until("the first attempt", async || chat.attempts() == 1).await;
    let question = setup.question().await;
    setup.decide(Verdict::Approve).await;
    setup.clock.advance(Duration::from_secs(60));
    settle().await;
    assert_eq!((chat.attempts(), chat.got().len()), (1, 0));
    assert_eq!(setup.notified(&question).await, Some(Notified::Withdrawn));
}

#[tokio::test]
async fn an_attempt_that_was_not_recorded_is_made_again_with_the_same_id() {
    let (lost, chat) = (Chat { hangs: true, ..Chat::default() }, Chat::default());
    let Setup { shop, ledger, clock, server } = Setup::notifying(&lost, settings());
    let client = visitor(&server).await;
    client.call("refund", order()).await.asked();
    until("the attempt", async || lost.attempts() == 1).await;
    drop((client, server));
    let other = builder(&shop, ledger, &clock).elsewhere(settings().notify(chat.clone())).build().unwrap();
    until("the notification", async || {
        clock.advance(Duration::from_secs(30));
        settle().await;
        chat.got().len() == 1
    })
    .await;
    assert!(lost.ids.lock().unwrap().iter().all(|id| *id == chat.got()[0].id), "by its id it is the same");
    let question = open(&other.flows()).await;
    until("the record", async || {
        matches!(other.flows().notified(&question).await.unwrap(), Some(Notified::Sent { attempts: 2.., .. }))
    })
    .await;
}
