// What a link needs of the worker that it belongs to. All references outlive the LinkSender or LinkReceiver.
#pragma once

#include "base/id128.h"
#include "kvstore/compatibility.h"
#include "kvstore/kv_arena.h"
#include "kvstore/kv_block_pool.h"
#include "kvstore/transfer/handoff_probe.h"
#include "kvstore/transfer/loopback_transport.h"

namespace baton::kvstore {

struct LinkWorker {
  KvBlockPool& pool;  // Made with arena.generations(), if peers are to map the arena.
  const KvArena& arena;
  Compatibility compatibility;
  base::Id128 incarnation;
  HandoffProbe& probe;
  LoopbackRegistry* loopback = nullptr;  // Null: no other worker is in this process.
};

}  // namespace baton::kvstore
