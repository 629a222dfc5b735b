// A synchronous client of baton.v1.InferenceService, in plain structs: what the `baton` command needs of it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace baton::tools {

// What both Chat and Generate may be told; absent fields take the server's defaults.
struct AnswerOptions {
  std::string model;
  std::optional<int64_t> max_tokens;
  std::optional<float> temperature;
  std::optional<uint32_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;
  bool ignore_eos = false;
};

struct ChatTurn {
  std::string role;  // "system", "user", "assistant" or "tool"
  std::string content;
};

struct AnswerSummary {
  std::string text;
  std::string finish_reason;  // "stop" or "length"
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  uint32_t completion_tokens = 0;
  absl::Duration time_to_first_token;
  absl::Duration total;

  // Of the tokens after the first; 0 if there is at most one.
  double tokens_per_second() const;
};

struct ModelDescription {
  std::string name;
  std::string architecture;
  uint32_t context_tokens = 0;
  uint32_t vocabulary_size = 0;
  bool has_chat_template = false;
};

struct WorkerDescription {
  std::string role, address, state, incarnation, cpu_level;
  uint32_t blocks_total = 0, blocks_free = 0, blocks_pinned = 0, blocks_reserved = 0;
  uint32_t queued_tokens = 0, queued_requests = 0, running_sequences = 0;
  uint64_t step_count = 0;
};

struct ClusterDescription {
  std::vector<WorkerDescription> workers;
  uint32_t requests_waiting = 0;
  uint32_t requests_running = 0;
  absl::Duration uptime;
};

struct TokenDescription {
  uint32_t id = 0;
  std::string bytes;
};

// Called with each piece of text as it arrives; false cancels the answer.
using TextSink = std::function<bool(const std::string& text)>;

// Thread-safe. Errors are the server's, unchanged.
class InferenceClient {
 public:
  explicit InferenceClient(const std::string& router_address);
  ~InferenceClient();

  absl::StatusOr<AnswerSummary> Chat(const std::vector<ChatTurn>& turns, const AnswerOptions& options,
                                     const TextSink& sink);
  absl::StatusOr<AnswerSummary> Generate(const std::string& prompt, const AnswerOptions& options,
                                         const TextSink& sink);
  absl::StatusOr<std::vector<TokenDescription>> Tokenize(const std::string& text, bool parse_special);
  absl::StatusOr<std::vector<ModelDescription>> ListModels();
  absl::StatusOr<ClusterDescription> GetClusterStatus();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::tools
