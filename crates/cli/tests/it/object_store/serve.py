"""An S3 server (moto) for tests: prints its address, then answers each line with what its bucket holds."""

import sys
import boto3
from moto.server import ThreadedMotoServer
from werkzeug.serving import WSGIRequestHandler

WSGIRequestHandler.protocol_version = "HTTP/1.1"
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
server.start()
endpoint = "http://127.0.0.1:%d" % server.get_host_and_port()[1]
client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
client.create_bucket(Bucket="data")
print(endpoint, flush=True)
for line in sys.stdin:
    listed = client.list_objects_v2(Bucket="data", MaxKeys=1000)
    uploads = client.list_multipart_uploads(Bucket="data").get("Uploads", [])
    print(listed["KeyCount"], len(uploads), flush=True)
