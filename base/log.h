// LOG(INFO) << "worker attached" << LogField("role", role): one line to stderr per statement,
//
//   I 2026-12-01T09:13:27.123Z router worker_registry.cc:42 worker attached role=prefill
//
// Log state changes with the request id, never tokens or steps (count those instead).
#pragma once

#include <ostream>
#include <sstream>

#include "absl/strings/string_view.h"

namespace baton::base {

enum class LogLevel { DEBUG, INFO, WARNING, ERROR };

// Names the process in every line ("router"); lines below `level` are dropped. Call once, first in main().
void InitLogging(absl::string_view process_name, LogLevel level);
LogLevel MinimumLogLevel();

class LogLine {
 public:
  LogLine(LogLevel level, const char* file, int line);
  ~LogLine();  // Writes the line with one write(2).
  std::ostream& stream() { return stream_; }

 private:
  std::ostringstream stream_;
};

// Prints " name=value", quoting a value that has spaces, quotes or control characters.
class LogField {
 public:
  template <typename T>
  LogField(absl::string_view name, const T& value) : name_(name) {
    std::ostringstream out;
    out << value;
    value_ = out.str();
  }
  friend std::ostream& operator<<(std::ostream& out, const LogField& field);

 private:
  absl::string_view name_;
  std::string value_;
};

struct LogVoidify {
  void operator&(std::ostream&) const {}
};

}  // namespace baton::base

#define LOG(level)                                                             \
  ::baton::base::LogLevel::level < ::baton::base::MinimumLogLevel()            \
      ? (void)0                                                                \
      : ::baton::base::LogVoidify() &                                          \
            ::baton::base::LogLine(::baton::base::LogLevel::level, __FILE__, __LINE__).stream()
