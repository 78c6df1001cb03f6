use std::time::Duration;

use anyhow::Result;
use skep_store::{Memory, Sessions};

use crate::contract;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_keeps_the_contract() -> Result<()> {
    contract::holds(Sessions::Memory(Memory::new(Duration::from_hours(2)))).await
}

#[tokio::test]
async fn memory_forgets() -> Result<()> {
    contract::forgets(Sessions::Memory(Memory::new(Duration::from_millis(50)))).await
}
