// What the front doors (gRPC now, HTTP later) see of the router.
#pragma once

#include <memory>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "router/request.h"
#include "router/served_model.h"
#include "router/worker_registry.h"

namespace baton::router {

struct ClusterStatus {
  std::vector<WorkerSnapshot> workers;
  uint32_t requests_waiting = 0;
  uint32_t requests_running = 0;
  absl::Duration uptime;
};

// Any thread; never blocks.
class RequestHandler {
 public:
  virtual ~RequestHandler() = default;

  virtual const ServedModel& model() const = 0;
  // Shortest context of the attached workers; 0: none.
  virtual uint32_t worker_context_tokens() const = 0;

  // Takes a request on. Not OK: refused here, `sink` was not touched and will not be. OK: exactly
  // one last call of `sink` follows.
  virtual absl::Status Submit(RequestSpec spec, std::shared_ptr<AnswerSink> sink) = 0;
  // A request was refused before it could be submitted: for the count of outcomes.
  virtual void NoteRefused(const absl::Status& why) = 0;
  // Ends a request with `why`; unknown or ended ones are ignored.
  virtual void Cancel(const base::Id128& id, const absl::Status& why) = 0;

  // The tokens of a prompt, on a text thread. `done` runs once if this returns OK.
  using Encoded = absl::AnyInvocable<void(absl::StatusOr<EncodedPrompt>)>;
  virtual absl::Status Encode(const std::string& model_name, Prompt prompt, Encoded done) = 0;
  // The text of tokens, the same way.
  using Decoded = absl::AnyInvocable<void(std::string)>;
  virtual absl::Status Decode(const std::string& model_name, std::vector<uint32_t> ids,
                              Decoded done) = 0;

  virtual ClusterStatus Status() const = 0;
};

}  // namespace baton::router
