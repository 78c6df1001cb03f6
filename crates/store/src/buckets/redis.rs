//! Buckets in Redis. Keys and members are those of the original, so that its replicas and ours can share them during a rollout.

use redis::Cmd;

use super::level::micros;
use super::{Bucket, Taken};
use crate::StoreError;
use crate::redis::{Again, Server};

/// The algorithm of [`super::level`], by the clock of Redis. Periods are passed and not rates, so that slow buckets lose no digits.
const SCRIPT: &str = "
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local levels, times, empty = {}, {}, 0
for i, key in ipairs(KEYS) do
  local capacity, period = tonumber(ARGV[2 * i - 1]), tonumber(ARGV[2 * i])
  local kept = redis.call('HMGET', key, 'tokens', 'last_refill')
  local tokens, last = tonumber(kept[1]), tonumber(kept[2])
  if tokens == nil or last == nil then
    tokens, last = capacity, now
  end
  local elapsed = math.max(0, now - last)
  levels[i] = math.min(capacity, tokens + elapsed * capacity / math.max(1, period))
  times[i] = math.max(now, last)
  if levels[i] < 1 and empty == 0 then
    empty = i
  end
end
for i, key in ipairs(KEYS) do
  local tokens = levels[i]
  if empty == 0 then
    tokens = tokens - 1
  end
  redis.call('HSET', key, 'tokens', string.format('%.17g', tokens), 'last_refill', string.format('%.0f', times[i]))
  redis.call('PEXPIRE', key, math.ceil(tonumber(ARGV[2 * i]) / 500))
end
return empty
";

/// Buckets in Redis.
#[derive(Debug)]
pub struct RedisBuckets {
    server: Server,
}

// === impl RedisBuckets ===

impl RedisBuckets {
    /// Buckets at a server.
    pub fn new(server: Server) -> Self {
        Self { server }
    }

    /// Takes one token from each bucket, or none. All keys of a request must be in one slot of a cluster: they share a `{tag}`.
    pub(super) async fn take(&self, buckets: &[Bucket]) -> Result<Taken, StoreError> {
        let mut command = Cmd::new();
        command.arg("EVAL").arg(SCRIPT).arg(buckets.len());
        for bucket in buckets {
            command.arg(&bucket.key);
        }
        for bucket in buckets {
            command.arg(bucket.capacity.max(1)).arg(micros(bucket));
        }
        // Not a second time: the first may have taken its tokens.
        let empty: usize = self.server.run(&command, Again::IfUnsent).await?;
        Ok(empty.checked_sub(1).map_or(Taken::All, |empty| Taken::None { empty }))
    }
}
