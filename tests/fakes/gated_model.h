// A model that stops at the beginning of a step until it is let on: for tests of what happens meanwhile. Thread-safe but
// for Forward().
#pragma once

#include <string>

#include "base/mutex.h"
#include "model/model.h"

namespace baton::fakes {

class GatedModel final : public model::Model {
 public:
  // `model` outlives it. The gate is open at first.
  explicit GatedModel(model::Model& model) : model_(model) {}

  const model::ModelInfo& info() const override { return model_.info(); }
  std::string numerics_class() const override { return model_.numerics_class(); }
  uint32_t batch_rows_max() const override { return model_.batch_rows_max(); }

  void Forward(const model::ForwardBatch& batch, const kernels::PagedKvView& kv,
               model::LayerObserver* observer, absl::Span<float> logits) override {
    Pass();
    model_.Forward(batch, kv, observer, logits);
  }

  void Close() {
    base::MutexLock lock(mutex_);
    open_ = false;
  }
  void Open() {
    base::MutexLock lock(mutex_);
    open_ = true;
    changed_.NotifyAll();
  }
  // Lets the step at the gate pass, and waits until the next one stands there. The gate must be closed.
  void LetOneStep() {
    base::MutexLock lock(mutex_);
    ++let_through_;
    changed_.NotifyAll();
    while (let_through_ > 0) changed_.Wait(mutex_);
    while (!waiting_) changed_.Wait(mutex_);
  }
  void WaitUntilAtGate() {
    base::MutexLock lock(mutex_);
    while (!waiting_) changed_.Wait(mutex_);
  }

 private:
  void Pass() {
    base::MutexLock lock(mutex_);
    waiting_ = true;
    changed_.NotifyAll();
    while (!open_ && let_through_ == 0) changed_.Wait(mutex_);
    if (let_through_ > 0) --let_through_;
    waiting_ = false;
    changed_.NotifyAll();
  }

  model::Model& model_;
  base::Mutex mutex_;
  base::CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mutex_) = true;
  bool waiting_ ABSL_GUARDED_BY(mutex_) = false;
  int let_through_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace baton::fakes
