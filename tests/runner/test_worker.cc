#include "tests/runner/test_worker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "base/check.h"
#include "runner/step_planner.h"

namespace baton::runner {
namespace {

// A step that runs no batch changes nothing here, where nobody else holds blocks.
constexpr absl::Time kNow = absl::UnixEpoch();

std::unique_ptr<kvstore::KvArena> CreateArena(const kernels::KvLayout& layout, uint32_t blocks) {
  auto arena = kvstore::KvArena::Create(layout, blocks);
  CHECK_OK(arena.status());
  return *std::move(arena);
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Answer& answer) {
  out << "finish " << static_cast<int>(answer.finish) << ", ends " << answer.ends << ", failure "
      << answer.failure << ", tokens";
  for (size_t i = 0; i < answer.tokens.size(); ++i) {
    out << ' ' << answer.tokens[i];
    const auto& logprobs = answer.logprobs[i];
    if (logprobs && logprobs->chosen) out << '(' << logprobs->chosen->logprob << ')';
  }
  return out;
}

void TakeOutbox(const StepOutbox& outbox, Answers& answers) {
  for (const TokenOutput& output : outbox.tokens) {
    Answer& answer = answers[output.id];
    EXPECT_EQ(answer.ends, 0u) << "a token after the end";
    answer.tokens.push_back(output.token.token);
    answer.logprobs.push_back(output.token.logprobs);
    if (!output.prompt_logprobs.empty()) answer.prompt_logprobs = output.prompt_logprobs;
    answer.finish = output.finish;
    if (output.finish != FinishReason::kNone) ++answer.ends;
  }
  for (const SequenceFailure& failure : outbox.failures) {
    answers[failure.id].failure = failure.status;
    ++answers[failure.id].ends;
  }
}

void CopyingObserver::OnBlocksWritten(SequenceId id, uint32_t layer, uint32_t first_block,
                                      absl::Span<const kvstore::KvBlockId> blocks) {
  CHECK(!blocks.empty());
  auto& layers = copies_[id];
  layers.resize(kv_.layout.layers);
  CHECK_EQ(layers[layer].size(), first_block) << "told twice, or not in order: ";
  for (kvstore::KvBlockId block : blocks) {
    const uint8_t* bytes = kv_.LayerBlock(layer, static_cast<uint32_t>(block));
    layers[layer].emplace_back(reinterpret_cast<const char*>(bytes),
                               kv_.layout.layer_block_bytes());
  }
}

void CopyingObserver::Paste(SequenceId id, absl::Span<const kvstore::KvBlockId> blocks,
                            const kernels::PagedKvView& into) const {
  const auto& layers = copies_.at(id);
  for (uint32_t layer = 0; layer < into.layout.layers; ++layer) {
    CHECK_EQ(layers[layer].size(), blocks.size());
    for (size_t i = 0; i < blocks.size(); ++i) {
      std::copy(layers[layer][i].begin(), layers[layer][i].end(),
                into.LayerBlock(layer, static_cast<uint32_t>(blocks[i])));
    }
  }
}

TestWorker::TestWorker(model::Model& model, const kernels::KvLayout& layout, uint32_t blocks,
                       const RunnerConfig& config)
    : arena_(CreateArena(layout, blocks)), pool_(blocks), observer_(arena_->view()) {
  runner_ = std::make_unique<Runner>(model, pool_, arena_->view(), config, &observer_);
}

StepOutbox TestWorker::Step(StepInbox inbox) {
  StepOutbox outbox = runner_->Step(kNow, std::move(inbox));
  preempted_ += outbox.preempted;
  return outbox;
}

Answers TestWorker::Run(std::vector<SequenceRequest> requests) {
  Answers answers;
  TakeOutbox(Step({.add = std::move(requests)}), answers);
  Drain(answers);
  return answers;
}

Answers TestWorker::RunHandedOver(std::vector<SequenceRequest> requests, TestWorker& decode) {
  Answers answers;
  std::map<SequenceId, SequenceRequest> prefilling;
  for (SequenceRequest& request : requests) {
    prefilling[request.id] = request;
    request.hand_off = true;
  }
  std::deque<SequenceRequest> handed_over;  // Until the decode side has blocks for it.
  StepInbox inbox{.add = std::move(requests)};
  while (!prefilling.empty() || !handed_over.empty()) {
    const StepOutbox outbox = Step(std::exchange(inbox, {}));
    TakeOutbox(outbox, answers);
    for (const HandedOver& handed : outbox.handed_over) {
      pool_.Release(handed.blocks);
      SequenceRequest request = std::move(prefilling.extract(handed.id).mapped());
      if (answers[handed.id].ends > 0) continue;
      request.tokens.push_back(answers[handed.id].tokens.back());
      handed_over.push_back(std::move(request));
    }
    StepInbox decode_inbox;
    while (!handed_over.empty() && Adopt(handed_over.front(), decode, decode_inbox)) {
      handed_over.pop_front();
    }
    TakeOutbox(decode.Step(std::move(decode_inbox)), answers);
  }
  decode.Drain(answers);
  return answers;
}

bool TestWorker::Adopt(const SequenceRequest& request, TestWorker& decode, StepInbox& inbox) {
  AdoptedSequence adopted{.request = request};
  adopted.blocks.resize(
      BlocksFor(static_cast<uint32_t>(request.tokens.size()) - 1, kv().layout.block_tokens));
  if (!decode.pool().Allocate(absl::MakeSpan(adopted.blocks)).ok()) return false;
  observer_.Paste(request.id, adopted.blocks, decode.kv());
  inbox.adopt.push_back(std::move(adopted));
  return true;
}

void TestWorker::Drain(Answers& answers) {
  while (runner_->counts().running + runner_->counts().waiting > 0) {
    const StepOutbox outbox = Step();
    TakeOutbox(outbox, answers);
    ASSERT_FALSE(outbox.idle) << "sequences are left, and nothing moves";
  }
}

}  // namespace baton::runner
