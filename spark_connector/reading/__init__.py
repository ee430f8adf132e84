"""Reading topics: options, planning of batches and streams on the driver, fetching in tasks."""
