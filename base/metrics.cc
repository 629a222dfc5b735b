#include "base/metrics.h"

#include <exception>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "prometheus/exposer.h"
#include "prometheus/text_serializer.h"

namespace baton::base {

Metrics::Metrics() : registry_(std::make_shared<prometheus::Registry>()) {}

// civetweb takes up to two seconds to stop its threads, and a process makes one Metrics that ends with it: the endpoint is
// left to the end of the process. It holds the registry weakly, so a late scrape finds nothing.
Metrics::~Metrics() {
  static auto& endpoints = *new std::vector<std::unique_ptr<prometheus::Exposer>>;
  if (exposer_ != nullptr) endpoints.push_back(std::move(exposer_));
}

prometheus::Counter& Metrics::AddCounter(const std::string& name, const std::string& help,
                                         const MetricLabels& labels) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(*registry_).Add(labels);
}

prometheus::Gauge& Metrics::AddGauge(const std::string& name, const std::string& help,
                                     const MetricLabels& labels) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(*registry_).Add(labels);
}

prometheus::Histogram& Metrics::AddHistogram(const std::string& name, const std::string& help,
                                             const std::vector<double>& bounds,
                                             const MetricLabels& labels) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(*registry_).Add(labels,
                                                                                      bounds);
}

absl::Status Metrics::Serve(const std::string& host, uint16_t port) {
  CHECK(exposer_ == nullptr) << "Serve() was called twice";
  // civetweb reports a port in use by an exception; nothing else in Baton throws.
  try {
    exposer_ = std::make_unique<prometheus::Exposer>(absl::StrCat(host, ":", port), 1);
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve metrics on ", host, ":", port, ": ", error.what()));
  }
  exposer_->RegisterCollectable(registry_);
  const std::vector<int> ports = exposer_->GetListeningPorts();
  CHECK(!ports.empty());
  port_ = static_cast<uint16_t>(ports.front());
  return absl::OkStatus();
}

std::string Metrics::Text() const { return prometheus::TextSerializer().Serialize(registry_->Collect()); }

const std::vector<double>& LatencySecondsBounds() {
  static const auto& bounds = *new std::vector<double>{
      1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};
  return bounds;
}

}  // namespace baton::base
