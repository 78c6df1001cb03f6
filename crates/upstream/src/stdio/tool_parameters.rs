//! Which arguments of a tool call its headers repeat, by the schemas of the server.

use std::sync::Arc;

use skep_mcp::headers::parameters::Parameter;
use skep_mcp::{Message, method};

use super::upstream::StdioUpstream;
use crate::error::CallError;

// === impl StdioUpstream ===

impl StdioUpstream {
    /// The arguments of a call that headers repeat, see [`crate::tool_catalogue::ToolCatalogue::find`].
    pub(super) async fn parameters(
        self: &Arc<Self>,
        call: &Message,
        is_claimed: bool,
    ) -> Result<Arc<[Parameter]>, CallError> {
        let Some(tool) = method::resource(call) else { return Ok(Arc::default()) };
        if let Some(found) = self.catalogue.find(&tool, is_claimed) {
            return Ok(found);
        }
        let _one_at_a_time = self.catalogue.turn().await;
        if let Some(found) = self.catalogue.find(&tool, is_claimed) {
            return Ok(found);
        }
        let era = self.ready().await?;
        let mut listing = self.catalogue.begin();
        while let Some(request) = listing.request(era, call) {
            // It is learnt from on its way.
            let mut listed = self.call_internally(&request).await?;
            listing.take(&listed.response().await?);
        }
        self.catalogue.complete(&listing);
        Ok(self.catalogue.find(&tool, false).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests;
