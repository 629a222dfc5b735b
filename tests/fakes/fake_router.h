// The worker's side of a router: an AttachService that remembers what workers say and speaks when told to.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/grpc_server.h"
#include "base/id128.h"
#include "base/mutex.h"
#include "baton/v1/attach_service.grpc.pb.h"
#include "kvstore/handoff.h"

namespace baton::fakes {

// All that was said of one attempt by one worker, put together.
struct Told {
  std::vector<uint32_t> tokens;      // By output position from first_position on.
  uint32_t first_position = 0;
  std::vector<v1::TokenEvent> events;
  v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;
  std::optional<v1::EngineError> error;
  bool over() const { return finish != v1::FINISH_REASON_UNSPECIFIED || error.has_value(); }
};

// Thread-safe.
class FakeRouter final : public v1::AttachService::CallbackService {
 public:
  // `port` 0: any. CHECKs that it can listen.
  explicit FakeRouter(uint16_t port = 0);
  ~FakeRouter() override;

  std::string address() const;
  uint16_t port() const;
  const base::Id128& incarnation() const { return incarnation_; }

  // From now on an attach ends with this instead of a welcome; OK: welcome again.
  void RefuseWith(const grpc::Status& status);
  // Stops (or goes on) reading what workers say.
  void SetReading(bool reading);
  // Ends every stream.
  void BreakStreams(const grpc::Status& status);
  void SendCancel(const kvstore::HandoffKey& key);

  // What workers have said so far.
  std::vector<v1::WorkerHello> hellos() const;
  std::vector<v1::LoadReport> loads() const;
  uint32_t draining_count() const;
  size_t message_count() const;  // StepEvents messages.
  size_t attached_count() const;
  Told told(const std::string& worker_incarnation, const kvstore::HandoffKey& key) const;

  // Waits until `condition` holds; it is asked again whenever something was said. False: not within ten seconds.
  bool WaitUntil(const std::function<bool()>& condition) const;

  grpc::ServerBidiReactor<v1::AttachRequest, v1::AttachResponse>* Attach(
      grpc::CallbackServerContext* context) override;

 private:
  class Stream;
  void Take(Stream& stream, const v1::AttachRequest& message);
  void Forget(const Stream& stream);

  const base::Id128 incarnation_ = base::Id128::Random();

  mutable base::Mutex mutex_;
  mutable base::CondVar changed_;
  mutable uint64_t changes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::shared_ptr<Stream>> streams_ ABSL_GUARDED_BY(mutex_);
  grpc::Status refusal_ ABSL_GUARDED_BY(mutex_);
  bool reading_ ABSL_GUARDED_BY(mutex_) = true;
  std::vector<v1::WorkerHello> hellos_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::LoadReport> loads_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::pair<std::string, v1::TokenEvent>> events_ ABSL_GUARDED_BY(mutex_);
  uint32_t draining_count_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t message_count_ ABSL_GUARDED_BY(mutex_) = 0;

  std::unique_ptr<base::GrpcServer> server_;
};

}  // namespace baton::fakes
