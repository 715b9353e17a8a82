//! Futures of verbs on the software NIC: under each watcher and each way to wait, dropped, timed out and cancelled.

mod cancelling;
mod dropping;
mod echo;
mod handing_over;
mod operations;
mod runtimes;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::task::{Context as Cx, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use adverb::aio::{self, Queue};
use adverb::transport::{Connected, Rc};
use adverb::{Buf, Context, ProtectionDomain};

/// How long a test waits for what must come. Never reached unless something is broken.
const LONG: Duration = Duration::from_secs(30);

fn context() -> Context {
    match std::env::var("ADVERB_TEST_DEVICE") {
        Ok(name) => adverb::open(&name).expect("ADVERB_TEST_DEVICE names a device"),
        Err(_) => adverb::open_default().expect("the software NIC is linked in"),
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

/// Two connected queue pairs whose operations are futures, each with a queue of its own.
struct Pair<T: Connected> {
    pd: ProtectionDomain,
    a: aio::QueuePair<T>,
    b: aio::QueuePair<T>,
    a_queue: Queue,
    b_queue: Queue,
}

impl<T: Connected> Pair<T> {
    fn new() -> Self {
        Self::of(&|cq| Queue::new(cq))
    }

    fn of(queue: &dyn Fn(adverb::CompletionQueue) -> adverb::Result<Queue>) -> Self {
        let ctx = context();
        let pd = ctx.alloc_pd().unwrap();
        let a_queue = queue(ctx.create_cq(64).build().unwrap()).unwrap();
        let b_queue = queue(ctx.create_cq(64).build().unwrap()).unwrap();
        let a = connectable(&pd, &a_queue);
        let b = connectable(&pd, &b_queue);
        a.connect(&b.endpoint()).unwrap();
        b.connect(&a.endpoint()).unwrap();
        Self {
            pd,
            a,
            b,
            a_queue,
            b_queue,
        }
    }

    fn buf(&self, bytes: &[u8]) -> Buf {
        self.pd.reg_mr(bytes.to_vec()).unwrap()
    }
}

fn connectable<T: Connected>(pd: &ProtectionDomain, queue: &Queue) -> aio::QueuePair<T> {
    let qp = pd.create_qp::<T>(queue.cq()).max_inline(32).max_send_wr(4);
    queue.attach(qp.build().unwrap()).unwrap()
}

/// Two connected queue pairs on one queue.
fn on_one_queue(pd: &ProtectionDomain, queue: &Queue) -> (aio::QueuePair<Rc>, aio::QueuePair<Rc>) {
    let (a, b) = (connectable(pd, queue), connectable(pd, queue));
    a.connect(&b.endpoint()).unwrap();
    b.connect(&a.endpoint()).unwrap();
    (a, b)
}

/// A task that is polled by hand and counts how often it is woken.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Count {
    fn poll<F: Future + Unpin>(self: &Arc<Self>, future: &mut F) -> Poll<F::Output> {
        let waker = Waker::from(Arc::clone(self));
        Pin::new(future).poll(&mut Cx::from_waker(&waker))
    }

    fn is_woken(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }

    /// Until it is woken, by a watcher on another thread.
    fn wait(&self) {
        let start = std::time::Instant::now();
        while !self.is_woken() {
            assert!(start.elapsed() < LONG, "nobody wakes the task");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// It must end; it takes a moment, so that no machine is too busy for this. One that hangs is left behind.
fn ends(work: impl FnOnce() + Send + 'static) {
    let (tell, ended) = mpsc::channel();
    let thread = thread::spawn(move || {
        work();
        let _ = tell.send(());
    });
    match ended.recv_timeout(3 * LONG) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
        // Over, or it panicked.
        Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => thread.join().unwrap(),
    }
}

/// It must end.
async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(LONG, future)
        .await
        .expect("a future hangs")
}
