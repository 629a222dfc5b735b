// One attempt at one request: the only name that routers, workers and hand-offs share for it.
#pragma once

#include "kvstore/handoff.h"

namespace baton::worker {

using AttemptKey = kvstore::HandoffKey;

}  // namespace baton::worker
