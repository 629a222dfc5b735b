// Hand-off between two processes of one host: the sink maps the source's arena for reading and copies out of it.
//
//   source                                          sink
//   ShmListener on an abstract unix socket  ◄─────  connects, sends the nonce of its link
//   same user? known nonce? ────── descriptor ────► maps it read-only, unmaps it when the link goes
//
// The descriptor is opened read-only and the file is sealed against writable mappings (kv_arena.h), so nobody but its owner
// ever writes. The reader makes sure that the file cannot shrink under it before it maps it.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "kernels/kv_layout.h"
#include "kvstore/kv_arena.h"
#include "kvstore/transfer/link_hello.h"
#include "kvstore/transfer/range_reader.h"

namespace baton::kvstore {

// Gives the arena's descriptor to peers that know a nonce. Thread-safe; has a thread of its own.
class ShmListener {
 public:
  // `arena` outlives it. UNAVAILABLE: the system refuses a socket or a read-only descriptor.
  static absl::StatusOr<std::unique_ptr<ShmListener>> Start(const KvArena& arena);
  ~ShmListener();
  ShmListener(const ShmListener&) = delete;
  ShmListener& operator=(const ShmListener&) = delete;

  // What to tell a peer; its nonce opens the socket once.
  ShmOffer Offer();
  // The nonce is worth nothing any more.
  void Forget(const std::string& nonce);

 private:
  ShmListener() = default;
  void Run();
  void Serve(int connection);
  bool TakeNonce(const std::string& nonce);

  uint64_t arena_bytes_ = 0;
  int read_only_ = -1;
  int socket_ = -1;
  int stop_ = -1;  // An eventfd.
  std::string socket_name_;
  std::string boot_id_;
  base::Mutex mutex_;
  std::set<std::string> nonces_ ABSL_GUARDED_BY(mutex_);  // One a link at most.
  std::thread thread_;
};

// Connects to the source's socket and maps its arena, whose layout is ours. Waits `timeout` at most. FAILED_PRECONDITION: the
// source is on another host, is another user's, or its file is not sealed as an arena's is; UNAVAILABLE: it does not answer.
absl::StatusOr<std::unique_ptr<RangeReader>> ConnectShm(const ShmOffer& offer,
                                                        const kernels::KvLayout& layout,
                                                        absl::Duration timeout);

}  // namespace baton::kvstore
