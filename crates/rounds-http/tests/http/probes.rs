//! Probes at a port, over real sockets.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::SendRequest;
use rounds::{
    Rounds,
    ledger::{ClaimId, ClaimRequest, Claimed, Fence, Ledger, LedgerError, MemoryLedger, OwnerLost, Spill},
    time::{BoxFuture, Timestamp},
};
use rounds_http::Probes;

use crate::{
    lanes::{Tool, done},
    port::{Served, ready},
};

/// A port with the probes of this server.
async fn served(server: &Rounds<Tool>) -> Served {
    let probes = Probes::new(server.health());
    Served::at(ready(Tool::new(|_| async { done() })), |port| port.with_probes(probes)).await
}

/// A ledger that counts how often it was checked, and that can be away.
#[derive(Clone, Default)]
struct Checked {
    ledger: MemoryLedger,
    checks: Arc<AtomicUsize>,
    is_away: Arc<AtomicBool>,
}

impl Ledger for Checked {
    fn spill(&self, spill: Spill) -> BoxFuture<'_, Result<(), LedgerError>> {
        self.ledger.spill(spill)
    }

    fn claim(&self, id: ClaimId, request: ClaimRequest) -> BoxFuture<'_, Result<Claimed, LedgerError>> {
        self.ledger.claim(id, request)
    }

    fn renew(&self, id: ClaimId, fence: Fence, until: Timestamp) -> BoxFuture<'_, Result<bool, LedgerError>> {
        self.ledger.renew(id, fence, until)
    }

    fn settle(
        &self,
        id: ClaimId,
        fence: Fence,
        reply: Option<Vec<u8>>,
        spill: Option<Spill>,
        spent: Vec<ClaimId>,
    ) -> BoxFuture<'_, Result<bool, LedgerError>> {
        self.ledger.settle(id, fence, reply, spill, spent)
    }

    fn release(
        &self,
        id: ClaimId,
        fence: Fence,
        orphan: OwnerLost,
        unless_awaited: bool,
    ) -> BoxFuture<'_, Result<bool, LedgerError>> {
        self.ledger.release(id, fence, orphan, unless_awaited)
    }

    fn check(&self) -> BoxFuture<'_, Result<(), LedgerError>> {
        self.checks.fetch_add(1, Ordering::Relaxed);
        let is_away = self.is_away.load(Ordering::Relaxed);
        Box::pin(async move {
            match is_away {
                true => Err(LedgerError::Unavailable("redis://10.0.0.7 refused the password".into())),
                false => Ok(()),
            }
        })
    }
}

async fn probe(connection: &mut SendRequest<Full<Bytes>>, path: &str) -> (StatusCode, String) {
    // Under an address that is not among the allowed hosts.
    let request = Request::get(path).header("host", "10.1.2.3:80").body(Full::default()).unwrap();
    let response = connection.send_request(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn probes_are_answered_for_any_host_and_say_when_the_server_drains() {
    let server = Rounds::new(Tool::new(|_| async { done() }));
    let served = served(&server).await;
    let mut connection = served.connect().await;
    for path in ["/livez", "/readyz"] {
        assert_eq!(probe(&mut connection, path).await, (StatusCode::OK, "ok\n".to_owned()), "{path}");
    }
    assert_eq!(server.health().drain(Duration::ZERO).await.ended, 0);
    assert_eq!(probe(&mut connection, "/livez").await.0, StatusCode::OK);
    let (status, why) = probe(&mut connection, "/readyz").await;
    assert!(status == StatusCode::SERVICE_UNAVAILABLE && why.contains("draining"), "{status} {why}");
    assert_eq!(probe(&mut connection, "/mcp/readyz").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn however_many_probes_arrive_the_store_is_asked_once_a_second() {
    let ledger = Checked::default();
    ledger.is_away.store(true, Ordering::Relaxed);
    let server = Rounds::builder(Tool::new(|_| async { done() })).ledger(ledger.clone()).build().unwrap();
    let served = served(&server).await;
    let began = std::time::Instant::now();
    let mut connection = served.connect().await;
    for _ in 0..100 {
        let (status, why) = probe(&mut connection, "/readyz").await;
        assert_eq!((status, why.as_str()), (StatusCode::SERVICE_UNAVAILABLE, "the ledger is not ready\n"));
    }
    let checks = ledger.checks.load(Ordering::Relaxed) as u64;
    assert!(checks <= 1 + began.elapsed().as_secs(), "{checks} checks");
}
