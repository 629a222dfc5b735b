// CHECK: an invariant of our own code. It is on in release builds, and prints where and why before it aborts.
//
// What the outside can cause (a request, a flag, a file, a peer) is never CHECKed: it is an absl::Status.
#pragma once

#include <sstream>

namespace baton::base {

// Collects the message of a failed CHECK, prints it and aborts when it goes out of scope.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition);
  [[noreturn]] ~CheckFailure();
  std::ostream& stream() { return stream_; }

 private:
  std::ostringstream stream_;
};

// Makes the ternary in CHECK a void expression; & binds weaker than << and stronger than ?:.
struct CheckVoidify {
  void operator&(std::ostream&) const {}
};

}  // namespace baton::base

#define CHECK(condition)                    \
  __builtin_expect(static_cast<bool>(condition), 1) \
      ? (void)0                             \
      : ::baton::base::CheckVoidify() &     \
            ::baton::base::CheckFailure(__FILE__, __LINE__, #condition).stream()
#define CHECK_EQ(a, b) CHECK((a) == (b)) << "left " << (a) << ", right " << (b) << ": "
#define CHECK_LE(a, b) CHECK((a) <= (b)) << "left " << (a) << ", right " << (b) << ": "
#define CHECK_LT(a, b) CHECK((a) < (b)) << "left " << (a) << ", right " << (b) << ": "
#define CHECK_OK(status_expression)                                  \
  do {                                                               \
    const auto& check_ok_status = (status_expression);               \
    CHECK(check_ok_status.ok()) << check_ok_status.ToString() << ' '; \
  } while (false)
