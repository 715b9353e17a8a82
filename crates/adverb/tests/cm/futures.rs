//! The steps as futures: on tokio, on a thread of the library, dropped.

use std::time::Duration;

use adverb::aio;
use adverb::cm::{ConnectionEvent, Params};

use super::*;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

async fn soon<F: Future>(future: F) -> F::Output {
    let limit = LONG.unwrap();
    tokio::time::timeout(limit, future).await.unwrap()
}

#[test]
fn a_server_and_its_clients_are_tasks() {
    const CLIENTS: usize = 20;
    runtime().block_on(async {
        let listener = listener();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            for _ in 0..CLIENTS {
                let request = soon(listener.next_request()).await.unwrap();
                let ends = Ends::on(&request.context().unwrap());
                let queue = aio::Queue::new(ends.cq.clone()).unwrap();
                let qp = queue.attach(ends.qp()).unwrap();
                qp.post_recv(ends.pd.alloc_buf(64).unwrap()).unwrap();
                let accepting = request.start(qp, &Params::default()).unwrap();
                tokio::spawn(async move {
                    let connection = accepting.await.unwrap();
                    let message = soon(connection.inbox().next()).await.unwrap();
                    soon(connection.send(message.into_buf().unwrap()))
                        .await
                        .unwrap();
                    let over = soon(connection.event()).await.unwrap();
                    assert_eq!(over, ConnectionEvent::Disconnected);
                });
            }
        });
        for round in 0..CLIENTS {
            let way = soon(connector().start(address).unwrap().into_future())
                .await
                .unwrap();
            let ends = Ends::on(&way.context().unwrap());
            let queue = aio::Queue::new(ends.cq.clone()).unwrap();
            let qp = queue.attach(ends.qp()).unwrap();
            let asking = way.start(qp, &Params::default()).unwrap();
            let connection = soon(asking.into_future()).await.unwrap();
            let bytes = vec![round as u8; 40];
            let _ = soon(connection.send(ends.pd.reg_mr(bytes.clone()).unwrap()))
                .await
                .unwrap();
            let echo = soon(connection.recv(ends.pd.alloc_buf(64).unwrap()))
                .await
                .unwrap();
            assert_eq!(echo.payload(), Some(&bytes[..]));
        }
        soon(server).await.unwrap();
    });
}

#[test]
fn a_dropped_future_takes_no_request() {
    runtime().block_on(async {
        let listener = listener();
        let ends = Ends::on(&listener.context().unwrap());
        let mut asking = Vec::new();
        let mut taken = 0;
        while taken < 25 {
            if asking.len() < 25 {
                let way = route(&listener);
                asking.push(way.start(ends.qp(), &Params::default()).unwrap());
            }
            // Dropped after its first look, or a little later.
            let short = Duration::from_micros(asking.len() as u64 * 29 % 200);
            match tokio::time::timeout(short, listener.next_request()).await {
                Ok(request) => {
                    request.unwrap().reject(b"").unwrap();
                    taken += 1;
                }
                Err(_) => tokio::task::yield_now().await,
            }
        }
        for asking in asking {
            failure(soon(asking.into_future()).await.unwrap_err());
        }
        assert!(listener.try_accept().unwrap().is_none());
    });
}
