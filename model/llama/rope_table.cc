#include "model/llama/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "base/check.h"

namespace baton::model {
namespace {

constexpr uint32_t kPositionsPerFill = 256;  // Fewer, longer fills while a sequence grows token by token.

// The (fractional) pair whose wavelength makes `rotations` turns within the original context.
double YarnCorrection(const RopeConfig& rope, double rotations) {
  return rope.dimensions *
         std::log(rope.original_context_tokens / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(static_cast<double>(rope.theta)));
}

// YaRN (arXiv 2309.00071): fast pairs keep their frequency, slow ones are interpolated, a ramp lies between.
void ScaleYarn(const RopeConfig& rope, std::vector<float>& frequencies) {
  const double low = std::max(std::floor(YarnCorrection(rope, rope.beta_fast)), 0.0);
  double high = std::min(std::ceil(YarnCorrection(rope, rope.beta_slow)), rope.dimensions - 1.0);
  if (high == low) high += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    const double kept = frequencies[i];
    frequencies[i] = static_cast<float>(kept / rope.factor * ramp + kept * (1 - ramp));
  }
}

// Llama 3.1: by wavelength against the original context.
void ScaleLlama3(const RopeConfig& rope, std::vector<float>& frequencies) {
  const double context = rope.original_context_tokens;
  for (float& frequency : frequencies) {
    const double turns = context * frequency / (2 * std::numbers::pi);
    const double smooth =
        std::clamp((turns - rope.low_frequency_factor) /
                       (double{rope.high_frequency_factor} - rope.low_frequency_factor),
                   0.0, 1.0);
    frequency = static_cast<float>((1 - smooth) * frequency / rope.factor + smooth * frequency);
  }
}

}  // namespace

std::vector<float> RopeFrequencies(const RopeConfig& rope,
                                   absl::Span<const float> frequency_factors) {
  std::vector<float> frequencies(rope.dimensions / 2);
  CHECK(frequency_factors.empty() || frequency_factors.size() == frequencies.size());
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / rope.dimensions;
    frequencies[i] = static_cast<float>(1.0 / std::pow(static_cast<double>(rope.theta), exponent));
    if (!frequency_factors.empty()) frequencies[i] /= frequency_factors[i];
  }
  switch (rope.scaling) {
    case RopeScaling::kNone:
    case RopeScaling::kDynamic:
      break;
    case RopeScaling::kLinear:
      for (float& frequency : frequencies) frequency /= rope.factor;
      break;
    case RopeScaling::kYarn:
      ScaleYarn(rope, frequencies);
      break;
    case RopeScaling::kLlama3:
      ScaleLlama3(rope, frequencies);
      break;
  }
  return frequencies;
}

float RopeMagnitude(const RopeConfig& rope) {
  if (rope.scaling != RopeScaling::kYarn) return 1.0f;
  if (rope.attention_factor.has_value()) return *rope.attention_factor;
  return static_cast<float>(0.1 * std::log(static_cast<double>(rope.factor)) + 1.0);
}

RopeTable::RopeTable(std::vector<float> frequencies, float magnitude, uint32_t positions_max)
    : frequencies_(std::move(frequencies)),
      magnitude_(magnitude),
      positions_max_(positions_max),
      cos_(frequencies_.size() * positions_max * sizeof(float)),
      sin_(frequencies_.size() * positions_max * sizeof(float)) {}

void RopeTable::Cover(uint32_t positions) {
  CHECK_LE(positions, positions_max_);
  if (positions <= covered_) return;
  const uint32_t end = std::min(positions_max_, std::max(positions, covered_ + kPositionsPerFill));
  const size_t pairs = frequencies_.size();
  for (uint32_t position = covered_; position < end; ++position) {
    for (size_t i = 0; i < pairs; ++i) {
      const double angle = static_cast<float>(position) * frequencies_[i];
      cos_.as<float>()[position * pairs + i] = static_cast<float>(std::cos(angle)) * magnitude_;
      sin_.as<float>()[position * pairs + i] = static_cast<float>(std::sin(angle)) * magnitude_;
    }
  }
  covered_ = end;
}

}  // namespace baton::model
