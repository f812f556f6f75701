// Multiplies made-up weights by made-up activations as llama.cpp does on one thread, so many times. Takes the options of
// `product`, and `--repacked 1` for weights in the order that llama.cpp brings them into where it can. Ends with 3 where it
// cannot do that.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <strings.h>
#include <string>
#include <vector>

#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"

namespace {

constexpr int CANNOT = 3;

[[noreturn]] void end(int status, const char *why) {
    std::fprintf(stderr, "%s\n", why);
    std::exit(status);
}

struct Args {
    ggml_type type = GGML_TYPE_COUNT;
    int64_t n_out = 0, n_in = 0, rows = 1, runs = 1;
    bool repacked = false;

    Args(int argc, char **argv) {
        for (int i = 1; i + 1 < argc; i += 2) {
            const std::string name = argv[i];
            const char *value = argv[i + 1];
            if (name == "--dtype") {
                for (int t = 0; t < GGML_TYPE_COUNT; t++) {
                    const char *label = ggml_type_name(ggml_type(t));
                    if (label && strcasecmp(label, value) == 0) type = ggml_type(t);
                }
                if (type == GGML_TYPE_COUNT) end(CANNOT, "no such type");
            } else if (name == "--shape" && i + 2 < argc) {
                n_out = std::atoll(value);
                n_in = std::atoll(argv[i++ + 2]);
            } else if (name == "--rows") {
                rows = std::atoll(value);
            } else if (name == "--runs") {
                runs = std::atoll(value);
            } else if (name == "--repacked") {
                repacked = std::atoi(value) != 0;
            } else {
                end(2, "no such option");
            }
        }
        if (ggml_quantize_requires_imatrix(type)) end(CANNOT, "this type asks for an importance matrix");
        if (type == GGML_TYPE_COUNT || n_out < 1 || n_in < 1 || rows < 1) end(2, "--dtype TYPE --shape OUT IN are needed");
    }
};

ggml_backend_buffer_type_t repacking(ggml_backend_t backend) {
    ggml_backend_dev_t device = ggml_backend_get_device(backend);
    void *found = ggml_backend_reg_get_proc_address(
        ggml_backend_dev_backend_reg(device), "ggml_backend_dev_get_extra_bufts");
    auto extra = reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(found);
    for (auto *type = extra ? extra(device) : nullptr; type && *type; type++) {
        if (std::strstr(ggml_backend_buft_name(*type), "REPACK")) return *type;
    }
    end(CANNOT, "nothing repacks");
}

}  // namespace

int main(int argc, char **argv) {
    const Args args(argc, argv);
    ggml_backend_t backend = ggml_backend_cpu_init();
    ggml_backend_cpu_set_n_threads(backend, 1);
    ggml_backend_buffer_type_t where = args.repacked ? repacking(backend) : ggml_backend_cpu_buffer_type();
    const ggml_init_params params = {8 * ggml_tensor_overhead() + ggml_graph_overhead(), nullptr, true};
    ggml_context *stored = ggml_init(params), *computed = ggml_init(params);
    ggml_tensor *weights = ggml_new_tensor_2d(stored, args.type, args.n_in, args.n_out);
    if (!ggml_backend_alloc_ctx_tensors_from_buft(stored, where)) end(CANNOT, "no memory of this kind");
    ggml_tensor *x = ggml_new_tensor_2d(computed, GGML_TYPE_F32, args.n_in, args.rows);
    ggml_tensor *product = ggml_mul_mat(computed, weights, x);
    if (args.repacked && !weights->extra) end(CANNOT, "this type is not repacked");
    if (!ggml_backend_supports_op(backend, product)) end(CANNOT, "no such product");
    ggml_cgraph *graph = ggml_new_graph(computed);
    ggml_build_forward_expand(graph, product);
    if (!ggml_backend_alloc_ctx_tensors(computed, backend)) end(CANNOT, "no memory");

    std::vector<float> numbers(args.n_in * args.rows), row(args.n_in);
    for (size_t i = 0; i < numbers.size(); i++) numbers[i] = float(i * 37 % 101) / 50 - 1;
    std::vector<char> bytes(ggml_nbytes(weights));
    for (int64_t r = 0; r < args.n_out; r++) {
        for (int64_t i = 0; i < args.n_in; i++) row[i] = float((r * 31 + i * 17) % 211) / 100 - 1;
        char *to = bytes.data() + r * ggml_row_size(args.type, args.n_in);
        ggml_quantize_chunk(args.type, row.data(), to, 0, 1, args.n_in, nullptr);
    }
    ggml_backend_tensor_set(weights, bytes.data(), 0, bytes.size());
    ggml_backend_tensor_set(x, numbers.data(), 0, numbers.size() * sizeof(float));
    for (int64_t i = 0; i < args.runs; i++) ggml_backend_graph_compute(backend, graph);
    return 0;
}
