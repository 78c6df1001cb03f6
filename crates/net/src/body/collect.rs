//! Reading a whole body, within limits.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame};
use tokio::time::{Instant, Sleep};

use super::BodyError;
use crate::BoxError;
use crate::budget::{Budget, OverBudgetError, Purpose, Reservation, TINY};

/// The maximum length of a body, and how long its sender may pause.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// The maximum length; exactly this many bytes are fine.
    pub bytes: usize,
    /// How long the sender may take for the next `pace` bytes. Not a limit on the whole: a slow sender that keeps
    /// sending is served, and one that sends single bytes is not.
    pub idle: Duration,
    /// How many bytes must arrive in each `idle`; with 1, any part is enough.
    pub pace: usize,
}

/// The shared resources that a body may use.
#[derive(Clone, Copy, Debug)]
pub struct Intake<'a> {
    /// The budget that counts its bytes.
    pub budget: &'a Budget,
    /// The minimum rate over the whole body, in bytes per second; `idle` is granted on top of that, and 0 means none. A
    /// sender that meets [`Limit`] can still take an hour for some megabytes.
    pub rate: usize,
    /// The purpose of the bytes.
    pub purpose: Purpose,
}

impl<'a> Intake<'a> {
    /// For a request with this minimum rate.
    pub fn of_request(budget: &'a Budget, rate: usize) -> Self {
        Self { budget, rate, purpose: Purpose::Request }
    }

    /// For the response of a server, which may be slow. Reading pauses until there is room for it.
    pub fn of_response(budget: &'a Budget) -> Self {
        Self { budget, rate: 0, purpose: Purpose::Response }
    }

    async fn reserve(&self, bytes: usize) -> Result<Reservation, OverBudgetError> {
        let mut reservation = self.budget.reservation(self.purpose);
        self.grow(&mut reservation, bytes).await?;
        Ok(reservation)
    }

    /// Refuses a request that exceeds the budget. A response waits for room, which is backpressure on its sender.
    async fn grow(&self, reservation: &mut Reservation, more: usize) -> Result<(), OverBudgetError> {
        match self.purpose {
            Purpose::Request => reservation.grow(more),
            Purpose::Response => reservation.grow_or_wait(more, 0).await,
        }
    }
}

/// Reads a body to its end. One that announces to be too long is refused before anything is read, and one that arrives
/// in one part is not copied.
pub async fn collect<B>(body: B, limit: Limit) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let (bytes, _uncounted) = read(body, limit, None).await?;
    Ok(bytes)
}

/// The same within a budget. An announced length is reserved before anything is read, so that a started body is not
/// refused later; it counts until its last byte is dropped.
pub async fn collect_within<B>(body: B, limit: Limit, intake: Intake<'_>) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let (bytes, counted) = read(body, limit, Some(intake)).await?;
    if bytes.len() < TINY {
        // A slice of the connection's read buffer, which it would keep in memory and which is not counted.
        return Ok(Bytes::copy_from_slice(&bytes));
    }
    let Some(mut counted) = counted else { return Ok(bytes) };
    counted.shrink_to(bytes.len());
    Ok(counted.over(bytes))
}

async fn read<B>(body: B, limit: Limit, intake: Option<Intake<'_>>) -> Result<(Bytes, Option<Reservation>), BodyError>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let too_large = BodyError::TooLarge { limit: limit.bytes };
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > limit.bytes {
        return Err(too_large);
    }
    let mut counted = match intake {
        Some(intake) => Some(intake.reserve(if announced < TINY { 0 } else { announced }).await?),
        None => None,
    };
    let mut body = pin!(body);
    let mut pause = pin!(None::<Sleep>);
    let mut clock = Clock::new(limit, intake.map(|intake| intake.rate));
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while let Some(frame) = next(body.as_mut(), pause.as_mut(), &mut clock).await? {
        // Trailers are not used.
        let Ok(data) = frame.into_data() else { continue };
        let so_far = first.len() + rest.len();
        if data.len() > limit.bytes - so_far {
            return Err(too_large);
        }
        let length = so_far + data.len();
        if let (Some(counted), Some(intake)) = (&mut counted, &intake)
            && length >= TINY
            && length > counted.bytes()
        {
            // Reserved ahead of what arrived, as memory is allocated.
            let ahead = (2 * counted.bytes()).clamp(length, limit.bytes);
            if counted.grow_ahead(ahead - counted.bytes()).is_err() {
                intake.grow(counted, length - counted.bytes()).await?;
            }
        }
        clock.came(data.len());
        if so_far == 0 {
            first = data;
            continue;
        }
        if rest.is_empty() {
            rest.reserve(announced.max(length));
            rest.extend_from_slice(&std::mem::take(&mut first));
        }
        rest.extend_from_slice(&data);
    }
    Ok((if rest.is_empty() { first } else { rest.freeze() }, counted))
}

/// Reads on and discards, within limits. A connection that is closed while its peer still sends is reset, and the peer
/// never sees the response.
pub async fn discard<B>(body: B, bytes: usize, time: Duration)
where
    B: Body<Data = Bytes>,
{
    let read = async {
        let mut body = pin!(body);
        let mut left = bytes;
        while let Some(Ok(frame)) = poll_fn(|context| body.as_mut().poll_frame(context)).await {
            let length = frame.data_ref().map_or(0, Bytes::len);
            if length > left {
                return;
            }
            left -= length;
        }
    };
    let _too_long = tokio::time::timeout(time, read).await;
}

/// The deadlines of a sender.
#[derive(Debug)]
struct Clock {
    limit: Limit,
    rate: Option<usize>,
    /// When its bytes were first waited for, and until when the next `pace` bytes must arrive.
    times: Option<(Instant, Instant)>,
    /// What arrived since that was set.
    fresh: usize,
    /// What arrived in all.
    received: usize,
}

impl Clock {
    fn new(limit: Limit, rate: Option<usize>) -> Self {
        Self { limit, rate, times: None, fresh: 0, received: 0 }
    }

    fn came(&mut self, bytes: usize) {
        self.fresh += bytes;
        self.received += bytes;
    }

    /// Until when the next bytes are waited for, and the error if they do not arrive.
    fn deadline(&mut self) -> (Instant, BodyError) {
        let (idle, now) = (self.limit.idle, Instant::now());
        let (started, mut idle_until) = self.times.unwrap_or((now, now));
        if self.times.is_none() || self.fresh >= self.limit.pace {
            (idle_until, self.fresh) = (now + idle, 0);
        }
        self.times = Some((started, idle_until));
        let stalled = (idle_until, BodyError::Stalled { idle });
        let Some(rate) = self.rate.filter(|rate| *rate > 0) else { return stalled };
        let granted = Duration::from_millis((self.received as u64).saturating_mul(1000) / rate as u64);
        let until = started + idle + granted;
        if until < idle_until { (until, BodyError::TooSlow { rate }) } else { stalled }
    }
}

/// The next frame. The clock is read only when there is nothing to read yet.
async fn next<B>(
    mut body: Pin<&mut B>,
    mut pause: Pin<&mut Option<Sleep>>,
    clock: &mut Clock,
) -> Result<Option<Frame<Bytes>>, BodyError>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let mut late = None;
    poll_fn(|context: &mut Context<'_>| {
        if let Poll::Ready(frame) = body.as_mut().poll_frame(context) {
            return Poll::Ready(frame.transpose().map_err(|error| BodyError::Broken(error.into())));
        }
        if late.is_none() {
            let (until, error) = clock.deadline();
            late = Some(error);
            match pause.as_mut().as_pin_mut() {
                Some(pause) => pause.reset(until),
                None => pause.set(Some(tokio::time::sleep_until(until))),
            }
        }
        match pause.as_mut().as_pin_mut().map(|pause| pause.poll(context)) {
            Some(Poll::Ready(())) => Poll::Ready(late.take().map_or(Ok(None), Err)),
            _ => Poll::Pending,
        }
    })
    .await
}
