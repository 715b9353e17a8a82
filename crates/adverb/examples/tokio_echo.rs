//! Echo with timeouts, on tokio, between two processes:
//!
//!     cargo run -p adverb --features tokio --example tokio_echo -- listen 127.0.0.1:7471 [DEVICE]
//!     cargo run -p adverb --features tokio --example tokio_echo -- connect 127.0.0.1:7471 [DEVICE]
//!
//! The server takes its time for every tenth message, longer than the client has patience. The client goes on with the
//! next one, and counts the late answer when it comes: a wait that is given up loses nothing.

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use adverb::aio::{Queue, QueuePair};
use adverb::transport::Rc;
use adverb::{Error, Introduction, ProtectionDomain};
use tokio::time::{sleep, timeout};

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

const MESSAGES: u32 = 50;
/// How long the client waits for an answer.
const PATIENCE: Duration = Duration::from_millis(20);
/// How long the server takes for every tenth.
const SLOWNESS: Duration = Duration::from_millis(50);
/// How long nothing may happen before somebody gives up for good.
const IDLE: Duration = Duration::from_secs(10);
const RECEIVES: u32 = 16;
const LENGTH: usize = 64;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    println!("{}", run(&args)?);
    Ok(())
}

/// One side; says what came of it.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(args: &[String]) -> Result<String> {
    let device = args.get(2).map(String::as_str);
    match args {
        [role, address, ..] if role == "listen" => {
            let (stream, _) = TcpListener::bind(address)?.accept()?;
            serve(End::meet(stream, device)?).await
        }
        [role, address, ..] if role == "connect" => {
            ask(End::meet(TcpStream::connect(address)?, device)?).await
        }
        _ => Err("usage: tokio_echo listen|connect ADDRESS [DEVICE]".into()),
    }
}

/// One end of the connection, with its receives posted.
struct End {
    pd: ProtectionDomain,
    qp: QueuePair<Rc>,
}

impl End {
    /// Both sides tell each other over TCP where their queue pairs are, and then that they are connected. (This blocks,
    /// which does no harm before anything runs.)
    fn meet(mut stream: TcpStream, device: Option<&str>) -> Result<Self> {
        let ctx = match device {
            Some(name) => adverb::open(name)?,
            None => adverb::open_default()?,
        };
        let pd = ctx.alloc_pd()?;
        let queue = Queue::new(ctx.create_cq(64).build()?)?;
        let qp = pd.create_qp::<Rc>(queue.cq()).max_recv_wr(RECEIVES);
        let qp = queue.attach(qp.build()?)?;
        for _ in 0..RECEIVES {
            qp.post_recv(pd.alloc_buf(LENGTH)?)?;
        }
        let me = Introduction::new(qp.endpoint());
        qp.connect(&me.exchange(&mut stream)?.endpoint)?;
        me.exchange(&mut stream)?;
        Ok(Self { pd, qp })
    }

    async fn send(&self, number: u32) -> Result<(), Error> {
        let message = self.pd.reg_mr(number.to_be_bytes().to_vec())?;
        self.qp.send(message).await?;
        Ok(())
    }

    /// The next number that comes; its receive is posted again.
    async fn receive(&self) -> Result<u32> {
        let message = self.qp.inbox().next().await?;
        let number = message.payload().ok_or("no payload")?.try_into()?;
        let number = u32::from_be_bytes(number);
        self.qp.post_recv(message.into_buf().ok_or("no buffer")?)?;
        Ok(number)
    }
}

async fn serve(end: End) -> Result<String> {
    for served in 0.. {
        let number = timeout(IDLE, end.receive()).await??;
        if number == MESSAGES {
            return Ok(format!("served {served}"));
        }
        if number % 10 == 9 {
            sleep(SLOWNESS).await;
        }
        timeout(IDLE, end.send(number)).await??;
    }
    unreachable!("it has served four thousand million")
}

async fn ask(end: End) -> Result<String> {
    let (mut in_time, mut late) = (0, 0);
    for number in 0..MESSAGES {
        // Given up or not, once posted it arrives.
        if let Ok(sent) = timeout(PATIENCE, end.send(number)).await {
            sent?;
        }
        let answer = async {
            loop {
                match end.receive().await? {
                    answer if answer == number => {
                        return Ok::<_, Box<dyn std::error::Error + Send + Sync>>(());
                    }
                    _ => late += 1,
                }
            }
        };
        if let Ok(answered) = timeout(PATIENCE, answer).await {
            answered?;
            in_time += 1;
        }
    }
    while in_time + late < MESSAGES {
        timeout(IDLE, end.receive()).await??;
        late += 1;
    }
    end.send(MESSAGES).await?;
    Ok(format!("{in_time} in time, {late} late, none lost"))
}
