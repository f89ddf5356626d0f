/* Round trips of 8 bytes by tagged messages, with a context, worker and endpoint that the comparison does
 * not share: each side posts, then makes progress until its request is complete, as ucx_perftest does. */
#include <stddef.h>
#include <stdint.h>
#include <ucp/api/ucp.h>

#define BYTES 8
#define TAG 0x1337

static ucp_worker_h worker;
static ucp_ep_h endpoint;
static const ucp_request_param_t plain = {0};

int reference_open(const void **address, size_t *bytes) {
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_worker_params_t single = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SINGLE};
    ucp_config_t *config;
    ucp_context_h context;
    ucp_address_t *own;
    ucs_status_t status = ucp_config_read(NULL, NULL, &config);
    if (status == UCS_OK) status = ucp_init(&params, config, &context);
    if (status == UCS_OK) status = ucp_worker_create(context, &single, &worker);
    if (status == UCS_OK) status = ucp_worker_get_address(worker, &own, bytes);
    *address = status == UCS_OK ? own : NULL;
    return status;
}

int reference_connect(const void *peer) {
    ucp_ep_params_t to = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = peer};
    return ucp_ep_create(worker, &to, &endpoint);
}

static inline int complete(ucs_status_ptr_t request) {
    if (request == NULL) return 0;
    if (UCS_PTR_IS_ERR(request)) return UCS_PTR_STATUS(request);
    ucs_status_t status;
    while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS) ucp_worker_progress(worker);
    ucp_request_free(request);
    return status;
}

static inline ucs_status_ptr_t post_send(void *out) {
    return ucp_tag_send_nbx(endpoint, out, BYTES, TAG, &plain);
}

static inline ucs_status_ptr_t post_receive(void *in) {
    return ucp_tag_recv_nbx(worker, in, BYTES, TAG, UINT64_MAX, &plain);
}

int reference_ping(int rank, void *out, void *in, long reps) {
    int failed = 0;
    for (long i = 0; i < reps && !failed; i++) {
        if (rank == 0) {
            ucs_status_ptr_t sent = post_send(out);
            failed = complete(post_receive(in));
            failed |= complete(sent);
        } else {
            failed = complete(post_receive(in));
            failed |= complete(post_send(out));
        }
    }
    return failed;
}
