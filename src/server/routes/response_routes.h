// Routes to stored responses; without --response-store all of them answer 404.
#pragma once

#include "server/routes/routes.h"

namespace nibble {

/// GET /v1/responses/ID and /v1/responses/ID/input_items.
void answer_stored_response(ServerState& server, Call call);
/// DELETE /v1/responses/ID.
void answer_delete_response(ServerState& server, Call call);

}  // namespace nibble
