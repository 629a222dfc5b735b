#include "base/log.h"

#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace baton::base {
namespace {

std::atomic<LogLevel> g_minimum_level{LogLevel::INFO};

// Set once before any thread starts, and never freed, so that late lines at exit are safe.
std::string& ProcessName() {
  static auto& name = *new std::string("baton");
  return name;
}

}  // namespace

void InitLogging(absl::string_view process_name, LogLevel level) {
  ProcessName() = std::string(process_name);
  g_minimum_level = level;
}

LogLevel MinimumLogLevel() { return g_minimum_level.load(std::memory_order_relaxed); }

LogLine::LogLine(LogLevel level, const char* file, int line) {
  const char* slash = std::strrchr(file, '/');
  stream_ << "DIWE"[static_cast<int>(level)] << ' '
          << absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone()) << ' '
          << ProcessName() << ' ' << (slash == nullptr ? file : slash + 1) << ':' << line << ' ';
}

LogLine::~LogLine() {
  stream_ << '\n';
  const std::string line = stream_.str();
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

std::ostream& operator<<(std::ostream& out, const LogField& field) {
  out << ' ' << std::string(field.name_) << '=';
  const bool plain = !field.value_.empty() &&
                     field.value_.find_first_of(" \t\r\n\"=\\") == std::string::npos;
  if (plain) return out << field.value_;
  return out << '"' << absl::CHexEscape(field.value_) << '"';
}

}  // namespace baton::base
