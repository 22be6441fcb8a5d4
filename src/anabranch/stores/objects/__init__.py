"""Object stores: a local folder, memory, S3, GCS and Azure behind `core/diskless/objects.py`."""
