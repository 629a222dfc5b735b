// Prometheus metrics of one process and the endpoint that shows them.
//
// Each subsystem has an XProbe struct that looks its series up once (a look-up costs 320 ns, an increment 5 ns) and is
// handed to it. Names: baton_<subsystem>_<what>_<unit>; label values come from closed enums; no Summary.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"

namespace prometheus {
class Exposer;
}

namespace baton::base {

using MetricLabels = std::map<std::string, std::string>;

class Metrics {
 public:
  Metrics();
  ~Metrics();

  prometheus::Counter& AddCounter(const std::string& name, const std::string& help,
                                  const MetricLabels& labels = {});
  prometheus::Gauge& AddGauge(const std::string& name, const std::string& help,
                              const MetricLabels& labels = {});
  // `bounds` ascending, in the unit of the name.
  prometheus::Histogram& AddHistogram(const std::string& name, const std::string& help,
                                      const std::vector<double>& bounds,
                                      const MetricLabels& labels = {});

  // Serves /metrics on host:port; port 0: any. UNAVAILABLE when the port is in use. Call at most once.
  absl::Status Serve(const std::string& host, uint16_t port);
  uint16_t port() const { return port_; }  // 0: not served.
  // The text that /metrics shows, for tests.
  std::string Text() const;

 private:
  std::shared_ptr<prometheus::Registry> registry_;
  std::unique_ptr<prometheus::Exposer> exposer_;
  uint16_t port_ = 0;
};

// 1-2.5-5 bounds for seconds, from 100 µs to 60 s.
const std::vector<double>& LatencySecondsBounds();

}  // namespace baton::base
